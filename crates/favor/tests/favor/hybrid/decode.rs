//! Decoding with exact keys: token by token, in pieces, in batches, and from files.

use super::{COLUMNS, DIM, Head, batch_of_heads, learned, overestimated, sets, worst};
use favor::reference::Mask;
use favor::store::{Array, Kind};
use favor::{DecodeState, ExactKeys, Family, FeatureMap, Kernel, Matrix, Qkv, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;

/// Token by token, in any pieces, from a file and by a clone: the same as at once.
#[test]
fn decoding_is_causal_attention_however_it_is_cut() {
    let length = 230;
    let heads = [Head::new(130, length, length), Head::new(140, length, length)];
    let maps = [heads[0].map(Family::Balanced, Kernel::attention(DIM)), learned()];
    for exact in sets() {
        let kept = [exact, exact.near(exact.near + 3)];
        let whole: Vec<Vec<f64>> =
            (0..2).map(|h| heads[h].run(&maps[h], kept[h], Mask::causal())).collect();
        for pieces in
            [vec![1; length], vec![length], vec![100, 1, 1, 46, 1, 60, 21], vec![47, 2, 181]]
        {
            let state = DecodeState::<f64>::new(maps.to_vec(), 1, 2, COLUMNS).unwrap();
            let mut state = state.exact_keys(&kept).unwrap();
            let mut start = 0;
            let mut outs = [vec![], vec![]];
            for (n, piece) in pieces.iter().enumerate() {
                let part = |of: fn(&Head) -> &Matrix<f64>| -> Vec<f64> {
                    let rows = |h: &Head| {
                        let m = of(h);
                        m.as_slice()[start * m.columns()..(start + piece) * m.columns()].to_vec()
                    };
                    heads.iter().flat_map(rows).collect()
                };
                let (q, k, v) = (part(|h| &h.q), part(|h| &h.k), part(|h| &h.v));
                let t = |x: &'_ [f64]| [1, 2, *piece, x.len() / piece / 2];
                let [q, k, v] = [&q, &k, &v].map(|x| Tensor::new(x, t(x)).unwrap());
                if n % 40 == 3 || start.is_multiple_of(ExactKeys::BLOCK) {
                    // An error leaves the state as it was, also where a block of keys is full.
                    let mut bad = vec![0.0; 2 * piece * COLUMNS];
                    bad[piece * COLUMNS] = f64::NAN;
                    let bad_v = Tensor::new(&bad, v.shape()).unwrap();
                    assert!(state.advance(q, k, bad_v).is_err());
                    let bytes = state.to_bytes().unwrap();
                    state = DecodeState::from_bytes(maps.to_vec(), &bytes).unwrap();
                    assert_eq!(state.tokens(), start);
                }
                // A clone goes on by itself: whichever of the two sees other tokens, the other does not.
                let mut other = state.clone();
                if n % 2 == 1 {
                    std::mem::swap(&mut state, &mut other);
                }
                other.advance(k, q, v).unwrap();
                let out = state.advance(q, k, v).unwrap();
                outs[0].extend_from_slice(&out[..piece * COLUMNS]);
                outs[1].extend_from_slice(&out[piece * COLUMNS..]);
                start += piece;
            }
            for h in 0..2 {
                let off = worst(&outs[h], &whole[h]);
                assert!(off < 1e-10, "{}, pieces of {}: {off:e}", kept[h], pieces[0]);
            }
        }
    }
}

/// A token that a later head refuses leaves no trace in the sums, not even where it raised the exponents of a
/// head before.
#[test]
fn refused_tokens_change_no_bit_of_the_sums() {
    let head = Head::new(150, 60, 60);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    for exact in [ExactKeys::NONE, ExactKeys::NONE.near(7).routed(3, 4)] {
        let state = DecodeState::<f64>::new(vec![map.clone()], 1, 2, COLUMNS).unwrap();
        let mut state = state.exact_keys(&[exact]).unwrap();
        let sums = |state: &DecodeState<f64>| -> Vec<Vec<f64>> {
            let mut arrays = Stored::read(&state.to_bytes().unwrap()).arrays;
            arrays.retain(|name, _| !name.starts_with("exact"));
            arrays.into_values().map(|(_, numbers)| numbers).collect()
        };
        let mut risen = 0;
        for i in 0..60 {
            let Head { q, k, v } = head.part(i..i + 1);
            let twice = |m: &Matrix<f64>, factor: f64| -> Vec<f64> {
                m.as_slice().iter().chain(m.as_slice()).map(|x| factor * x).collect()
            };
            let (q, k, v) = (twice(&q, 1.0), twice(&k, 1.0), twice(&v, 1.0));
            let (far, mut bad) = (k.iter().map(|x| 3.0 * x).collect::<Vec<_>>(), v.clone());
            bad[COLUMNS] = f64::NAN;
            let before = sums(&state);
            let t = |x| Tensor::new(x, [1, 2, 1, DIM]).unwrap();
            let of_values = |x| Tensor::new(x, [1, 2, 1, COLUMNS]).unwrap();
            assert!(state.advance(t(&q), t(&far), of_values(&bad)).is_err());
            assert_eq!(sums(&state), before, "{exact}, token {i}");
            // Kept, the same keys do raise them.
            let mut other = state.clone();
            other.advance(t(&q), t(&far), of_values(&v)).unwrap();
            let after = sums(&other);
            risen += usize::from(i > 0 && after[0] != before[0]);
            state.advance(t(&q), t(&k), of_values(&v)).unwrap();
            assert_eq!((state.tokens(), other.tokens()), (i + 1, i + 1));
        }
        assert!(risen > 10, "{exact}: exponents rose {risen} times");
    }
}

/// The states of a batch are those of single heads, each with its own map and exact keys.
#[test]
fn states_of_a_batch_are_single_states() {
    let length = 170;
    let (heads, maps, exact) = batch_of_heads(length);
    let state = DecodeState::<f64>::new(maps.to_vec(), 2, 2, COLUMNS).unwrap();
    let mut batch = state.exact_keys(&exact).unwrap();
    let mut single = [0, 1, 0, 1].map(|own| {
        let state = DecodeState::<f64>::new(vec![maps[own].clone()], 1, 1, COLUMNS).unwrap();
        state.exact_keys(&[exact[own]]).unwrap()
    });
    let mut start = 0;
    for piece in [99, 1, 1, 46, 1, 22] {
        let parts = heads.each_ref().map(|head| head.part(start..start + piece));
        let all = |of: fn(&Head) -> &Matrix<f64>| -> Vec<f64> {
            parts.iter().flat_map(|part| of(part).as_slice().to_vec()).collect()
        };
        let (q, k, v) = (all(|h| &h.q), all(|h| &h.k), all(|h| &h.v));
        let [q, k, v] =
            [&q, &k, &v].map(|x| Tensor::new(x, [2, 2, piece, x.len() / piece / 4]).unwrap());
        let together = batch.advance(q, k, v).unwrap();
        for (n, (state, part)) in single.iter_mut().zip(&parts).enumerate() {
            let Qkv { q, k, v } = part.inputs();
            let alone = state.advance(q, k, v).unwrap();
            assert_eq!(together[n * alone.len()..][..alone.len()], alone, "head {n}, from {start}");
        }
        start += piece;
    }
    let sizes = single.map(|state| state.size_in_bytes());
    assert_eq!(batch.size_in_bytes(), sizes.iter().sum::<usize>());
}

/// The bound of `docs/method.md` on a state of eight-byte numbers, with whole vectors of at most 16.
fn bound(map: &FeatureMap, exact: ExactKeys) -> usize {
    let up = |n: usize| n.next_multiple_of(16);
    let (m, d, v) = (up(map.features()), up(DIM), up(COLUMNS));
    let block = ExactKeys::BLOCK;
    let recent = (exact.near.max(block) + block) * (m + d + v + 2) + block * m;
    let global = exact.global * (m + d + v + 3) + (exact.global + 32) * (m + d);
    let members = m * up(exact.members) * (m + d + v + 5);
    8 * (m * (v + 10) + recent + global + members)
}

#[test]
fn memory_of_decoding_stays_flat() {
    let head = Head::new(150, 1200, 1200);
    let map = head.map(Family::Balanced, Kernel::attention(DIM));
    let exact = ExactKeys::NONE.near(9).global(4).routed(2, 6);
    let state = DecodeState::<f64>::new(vec![map.clone()], 1, 1, COLUMNS).unwrap();
    let mut state = state.exact_keys(&[exact]).unwrap();
    let mut sizes = vec![];
    for i in 0..1200 {
        let token = head.part(i..i + 1);
        let Qkv { q, k, v } = token.inputs();
        state.advance(q, k, v).unwrap();
        sizes.push(state.size_in_bytes());
    }
    let most = |part: &[usize]| part.iter().copied().max().unwrap();
    assert!(most(&sizes[600..]) <= most(&sizes[200..400]) * 5 / 4, "{:?}", &sizes[590..620]);
    let (largest, bound) = (most(&sizes), bound(&map, exact));
    assert!(largest <= bound, "{largest} bytes, at most {bound}");
    // Each member of a slot has all features: these alone are more than sums and keys.
    assert!(largest > 8 * map.features().pow(2) * exact.members, "{largest} bytes");
}

const KIND: Kind = Kind::new("favor.decode_state", "decode state", 5);

/// A stored state, taken apart: its header, and its arrays by name.
struct Stored {
    header: Value,
    arrays: BTreeMap<String, (Vec<usize>, Vec<f64>)>,
}

impl Stored {
    fn read(bytes: &[u8]) -> Self {
        let file = KIND.read::<Value>(bytes).unwrap();
        let names = file.names().into_iter().map(str::to_owned);
        let arrays = names.map(|name| (name.clone(), file.f64(&name).unwrap())).collect();
        Self { header: file.contents.clone(), arrays }
    }

    fn numbers(&mut self, what: &str) -> &mut Vec<f64> {
        &mut self.arrays.get_mut(&format!("exact.0.{what}")).unwrap().1
    }

    /// A file with a checksum that is right.
    fn write(&self) -> Vec<u8> {
        let array = |(name, (shape, numbers)): (&String, &(Vec<usize>, Vec<f64>))| {
            let shape = if shape.len() > 1 { shape.clone() } else { vec![numbers.len()] };
            Array::f64(name.clone(), shape, numbers)
        };
        KIND.write(&self.header, self.arrays.iter().map(array).collect()).unwrap()
    }
}

type Change = Box<dyn Fn(&mut Stored)>;

/// A file can be whole and yet hold exact keys that no tokens leave.
#[test]
fn wrong_exact_keys_are_refused() {
    let tokens = 130;
    let head = Head::new(170, tokens, tokens);
    let (map, exact) = (learned(), ExactKeys::NONE.near(5).global(4).routed(2, 3));
    let state = DecodeState::<f64>::new(vec![map.clone()], 1, 1, COLUMNS).unwrap();
    let mut state = state.exact_keys(&[exact]).unwrap();
    let Qkv { q, k, v } = head.inputs();
    state.advance(q, k, v).unwrap();
    let bytes = state.to_bytes().unwrap();
    let read = |bytes: &[u8]| DecodeState::<f64>::from_bytes(vec![map.clone()], bytes);
    assert_eq!(read(&Stored::read(&bytes).write()).unwrap().tokens(), tokens);

    // Recent keys, then one first token, the three worst keys, and the members of 24 slots.
    let counts = Stored::read(&bytes).numbers("counts").clone();
    let recent = counts[0] as usize;
    assert_eq!((counts.len(), counts[1], counts[2]), (27, 1.0, 3.0));
    assert_eq!(Stored::read(&bytes).numbers("known")[..], [96.0]);
    let (first, worst, member) = (recent, recent + 1, recent + 4);
    let positions = move |at: usize, to: f64| move |s: &mut Stored| s.numbers("positions")[at] = to;
    let twice =
        |at: usize| move |s: &mut Stored| s.numbers("positions").copy_within(at..=at, at + 1);
    let number = |what: &'static str, to: f64| move |s: &mut Stored| s.numbers(what)[0] = to;
    let header = |at: &'static str, to: Value| {
        move |s: &mut Stored| *s.header.pointer_mut(at).unwrap() = to.clone()
    };
    let mut changes: Vec<(String, Change)> = vec![];
    let mut add = |what: &str, change: Change| changes.push((what.to_owned(), change));
    add("fewer members are asked for", Box::new(header("/exact/0/members", 2.into())));
    add("no members are asked for", Box::new(header("/exact/0/members", 0.into())));
    add("one token more", Box::new(header("/tokens", 131.into())));
    add("no tokens", Box::new(header("/tokens", 0.into())));
    add("too many tokens", Box::new(header("/tokens", u64::MAX.into())));
    add("recent keys out of order", Box::new(|s| s.numbers("positions").swap(0, 1)));
    add("a recent key that is to come", Box::new(positions(recent - 1, 130.0)));
    add("a first token that is another", Box::new(positions(first, 1.0)));
    add("a worst key that is a first token", Box::new(positions(worst, 0.0)));
    add("a worst key twice", Box::new(twice(worst)));
    add("a member twice", Box::new(twice(member)));
    add("a member that no list knows yet", Box::new(positions(member, 96.0)));
    for bad in [0.5, -1.0, f64::NAN, f64::INFINITY, 1e19] {
        for what in ["counts", "positions", "known"] {
            add(&format!("{what} of {bad}"), Box::new(number(what, bad)));
        }
    }
    add(
        "another split of keys",
        Box::new(|s| s.numbers("counts")[3..5].copy_from_slice(&[4.0, 2.0])),
    );
    for known in [0.0, 48.0, 97.0, 144.0] {
        add(&format!("lists of {known} keys"), Box::new(number("known", known)));
    }
    for what in ["keys", "values", "constants", "pending", "scores", "totals", "exponents"] {
        for bad in [f64::NAN, f64::INFINITY] {
            add(&format!("{what} of {bad}"), Box::new(number(what, bad)));
        }
    }
    add("errors of NaN", Box::new(number("errors", f64::NAN)));
    let names = Stored::read(&bytes).arrays.into_keys().filter(|name| name.starts_with("exact"));
    for name in names {
        let [shorter, without] = [name.clone(), name.clone()];
        let cut = move |s: &mut Stored| {
            let numbers = &mut s.arrays.get_mut(&shorter).unwrap().1;
            numbers.truncate(numbers.len() - 1);
        };
        add(&format!("{name} with one number less"), Box::new(cut));
        add(&format!("no {name}"), Box::new(move |s| drop(s.arrays.remove(&without))));
    }
    for (what, change) in changes {
        let mut stored = Stored::read(&bytes);
        change(&mut stored);
        let Err(error) = read(&stored.write()) else { panic!("{what}: not refused") };
        assert!(error.to_string().contains("exact"), "{what}: {error}");
    }
}

/// A sequence starts again in `f64` where `f32` has too few digits. A state goes on in `f64`, with the sums
/// of the tokens before, also after it was stored.
#[test]
fn states_that_run_out_of_digits_go_on() {
    let length = 150;
    let (head, map) = overestimated(length, 1.5);
    let exact = ExactKeys::NONE.near(20).routed(3, 8);
    let narrow = |m: &Matrix<f64>| -> Vec<f32> { m.as_slice().iter().map(|x| *x as f32).collect() };
    let qkv = [narrow(&head.q), narrow(&head.k), narrow(&head.v)];
    let widen = |m: &[f32], columns| {
        Matrix::new(m.iter().map(|x| f64::from(*x)).collect(), length, columns).unwrap()
    };
    let [q, k] = [0, 1].map(|n| widen(&qkv[n], DIM));
    let rounded = Head { q, k, v: widen(&qkv[2], COLUMNS) };
    let plain = rounded.run(&map, exact, Mask::causal());
    let maps = vec![map];
    for piece in [1, 10] {
        let state = DecodeState::<f32>::new(maps.clone(), 1, 1, COLUMNS).unwrap();
        let mut state = state.exact_keys(&[exact]).unwrap();
        let (mut out, mut last) = (vec![], vec![]);
        for start in (0..length).step_by(piece) {
            if start % 20 == 10 {
                last = state.to_bytes().unwrap();
                state = DecodeState::from_bytes(maps.clone(), &last).unwrap();
            }
            let [q, k, v] = [0, 1, 2].map(|n| {
                let columns = qkv[n].len() / length;
                let part = &qkv[n][start * columns..(start + piece) * columns];
                Tensor::new(part, [1, 1, piece, columns]).unwrap()
            });
            out.extend(state.advance(q, k, v).unwrap());
        }
        let file = String::from_utf8_lossy(&last);
        assert!(file.contains(r#"wide\":[0]"#), "f32 had digits enough");
        let out: Vec<f64> = out.iter().map(|x| f64::from(*x)).collect();
        // As long as its digits suffice, f32 may lose ten of its 24 bits in each of 24 terms.
        let off = worst(&out, &plain);
        assert!(off < 24.0 * (10.0_f64 - 23.0).exp2(), "pieces of {piece}: {off:e}");
    }
}
