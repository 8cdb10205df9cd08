//! Where a process listens.

use crate::{Endpoint, Error, Result};

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Parses `HOST:PORT`, with or without a leading `df://`.
    pub(crate) fn parse(endpoint: Endpoint, text: &str) -> Result<Self> {
        let bare = text.strip_prefix("df://").unwrap_or(text).trim_end_matches('/');
        let parts = bare.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() && !host.contains(['/', ' ']) => {
                Ok(Self { host: host.to_owned(), port })
            }
            _ => Err(Error::Address { endpoint, text: text.to_owned() }),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused() {
        for text in ["df://node-1:50050", "node-1:50050", "df://node-1:50050/"] {
            let address = Address::parse(Endpoint::Scheduler, text).unwrap();
            assert_eq!(address, Address { host: "node-1".into(), port: 50050 });
        }
        assert_eq!(Address::parse(Endpoint::Scheduler, "[::1]:7").unwrap().to_string(), "[::1]:7");
        for text in ["", "node-1", "node-1:", ":5", "node-1:70000", "http://node-1:5", "a b:5"] {
            let error = Address::parse(Endpoint::Scheduler, text).unwrap_err().to_string();
            assert_eq!(error, format!("'{text}' is not an address; give HOST:PORT"));
        }
    }
}
