//! Names with numbers in them, in the order that people count: `kv-9` before `kv-10`.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural<'a>(pub &'a str);

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (self.0, other.0);
        loop {
            match (run(left), run(right)) {
                (None, None) => return self.0.cmp(other.0),
                (None, Some(_)) => return Ordering::Less,
                (Some(_), None) => return Ordering::Greater,
                (Some((a, rest_of_left)), Some((b, rest_of_right))) => {
                    let both_numbers = starts_with_digit(a) && starts_with_digit(b);
                    let order = if both_numbers { number(a).cmp(&number(b)) } else { a.cmp(b) };
                    if order.is_ne() {
                        return order;
                    }
                    (left, right) = (rest_of_left, rest_of_right);
                }
            }
        }
    }
}

impl PartialOrd for Natural<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The longest beginning that is all digits or has none, and the rest.
fn run(text: &str) -> Option<(&str, &str)> {
    let digits = starts_with_digit(text);
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Longer is larger once leading zeros are off; equally long numbers compare as text.
fn number(digits: &str) -> (usize, &str) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_inside_names_are_compared_as_numbers() {
        for (smaller, larger) in [
            ("kv-0", "kv-1"),
            ("kv-9", "kv-10"),
            ("kv2-9", "kv10-0"),
            ("http://127.0.0.3:2380", "http://127.0.0.20:2380"),
            ("kv-1.a", "kv-1.b"),
            ("kv", "kv-0"),
            ("", "kv"),
        ] {
            assert!(Natural(smaller) < Natural(larger), "{smaller} {larger}");
            assert!(Natural(larger) > Natural(smaller), "{smaller} {larger}");
        }
        assert_eq!(Natural("kv-1").cmp(&Natural("kv-1")), Ordering::Equal);
    }
}
