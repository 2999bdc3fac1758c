//! An amount as Kubernetes writes it: `500m`, `10Gi`, or a bare number such as `2`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const NANO: u128 = 1_000_000_000;

/// Kept as it was written. Manifests say `cpu: 2` as often as `cpu: "2"`, and both have to be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Number(i64),
    Text(String),
}

impl Quantity {
    /// In billionths, which is as fine as Kubernetes counts; smaller parts count as one. `None` if it is no
    /// amount. An amount too large for Kubernetes is as large as can be.
    pub fn nano(&self) -> Option<u128> {
        match self {
            Quantity::Number(number) => Some(u128::try_from(*number).ok()? * NANO),
            Quantity::Text(text) => nano(text),
        }
    }

    /// As people write it, if that is exact.
    pub fn of_bytes(bytes: u64) -> Self {
        let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
        let unit = units.iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
        Self::Text(unit.map_or(bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits)))
    }

    /// Rounded up to whole units.
    pub fn bytes(&self) -> Option<u64> {
        Some(u64::try_from(self.nano()?.div_ceil(NANO)).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Number(number) => number.fmt(f),
            Quantity::Text(text) => text.fmt(f),
        }
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "pattern": r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
        })
    }
}

fn nano(text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let mantissa: u128 = digits.parse().ok()?;
    let (factor, exponent) = unit(suffix)?;
    let mantissa = mantissa.saturating_mul(factor);
    let shift = exponent + 9 - i64::try_from(fraction.len()).ok()?;
    let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10_u128.checked_pow(shift));
    Some(match (mantissa, shift >= 0, power) {
        (0, ..) => 0,
        (_, true, power) => power.and_then(|power| mantissa.checked_mul(power)).unwrap_or(u128::MAX),
        (_, false, power) => power.map_or(1, |power| mantissa.div_ceil(power)),
    })
}

/// A factor and a power of ten.
fn unit(suffix: &str) -> Option<(u128, i64)> {
    Some(match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let (sign, digits) = match digits.strip_prefix('-') {
                Some(digits) => (-1, digits),
                None => (1, digits.strip_prefix('+').unwrap_or(digits)),
            };
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // Whatever has more digits than this is beyond every limit anyhow.
            (1, sign * digits.parse().unwrap_or(i64::from(i32::MAX)).min(i64::from(i32::MAX)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Quantity {
        Quantity::Text(text.into())
    }

    #[test]
    fn amounts_are_compared_by_value_and_not_by_how_they_are_written() {
        for (left, right) in [
            ("1Gi", "1024Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            (".5", "5e-1"),
            ("1e3", "1k"),
            ("1E3", "+1000"),
            ("2.", "2"),
            ("1E", "1e18"),
            ("0.1n", "1n"),
            ("1e-99999999999999999999", "1n"),
        ] {
            assert_eq!(text(left).nano(), text(right).nano(), "{left} {right}");
            assert!(text(left).nano().is_some(), "{left}");
        }
        assert_eq!(Quantity::Number(2).nano(), text("2000m").nano());
        assert!(text("10G").nano() < text("10Gi").nano());
    }

    #[test]
    fn bytes_are_rounded_up() {
        assert_eq!(text("10Gi").bytes(), Some(10 * (1 << 30)));
        assert_eq!(text("1m").bytes(), Some(1));
        assert_eq!(text("0").bytes(), Some(0));
        assert_eq!(text("1e99").bytes(), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for wrong in ["", "ten", "-1", "1.2.3", ".", "1 Gi", "1gi", "1e", "1e+", "1e--3", "1GiB", "0x10"] {
            assert_eq!(text(wrong).nano(), None, "{wrong}");
        }
        assert_eq!(Quantity::Number(-1).nano(), None);
    }
}
