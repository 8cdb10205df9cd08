//! try
use favor_tables::*;
use std::sync::Arc;
use std::time::Instant;
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let (train, test) = (args[0].clone(), args[1].clone());
    let mut r = FitRequest::of(get("--target").unwrap());
    r.task = Some(if args.contains(&"--regress".into()) { Task::Regress } else { Task::Classify });
    r.features = get("--features").map_or(256, |m| m.parse().unwrap());
    r.seed = get("--seed").map_or(0, |m| m.parse().unwrap());
    r.head = get("--head").map(|m| m.parse().unwrap());
    r.basis = get("--family").map(|m| m.parse().unwrap());
    r.kernel = get("--kernel").map(|m| m.parse().unwrap());
    r.linear = !args.contains(&"--no-linear".into());
    if let Some(h) = get("--bandwidth") { r.bandwidth = Bandwidth::Fixed(h.parse()?); }
    if let Some(n) = get("--numbers") { r.numbers = n.parse()?; }
    if let Some(n) = get("--categories") { r.categories = n.parse()?; }
    if let Some(n) = get("--ignore") { r.ignore = n.split(',').map(Into::into).collect(); }
    let progress = Arc::new(Progress::default());
    runtime(None)?.block_on(async {
        let start = Instant::now();
        let watch = progress.clone();
        std::thread::spawn(move || { let mut last = String::new(); loop { let now = watch.now().0.name.to_string(); if now != last { eprintln!("{:.2} {now}", start.elapsed().as_secs_f64()); last = now; } std::thread::sleep(std::time::Duration::from_millis(5)); } });
        let table = Table::open(&session(None), &Source::Files(vec![train])).await?;
        let model = fit(&table, &r, &progress).await?;
        println!("{}", model.to_text());
        println!("fit {:.2} s", start.elapsed().as_secs_f64());
        let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        println!("{}", peak.lines().find(|l| l.starts_with("VmHWM")).unwrap_or(""));
        if test != "-" {
            let table = Table::open(&session(None), &Source::Files(vec![test])).await?;
            println!("{}", evaluate(&table, &model, None, &progress).await?.to_text());
        }
        println!("all {:.2} s", start.elapsed().as_secs_f64());
        Ok::<(), Box<dyn std::error::Error>>(())
    })
}
