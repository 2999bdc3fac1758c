//! Kubernetes quantities as bytes.

/// Reads a quantity as the API server writes it: a whole number and a suffix. Fractions of a byte count as one.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u128 = number.parse().ok()?;
    let bytes = match suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<u32>().ok()) {
        Some(exponent) => number.checked_mul(10_u128.checked_pow(exponent)?)?,
        None => scaled(number, suffix)?,
    };
    bytes.try_into().ok()
}

fn scaled(number: u128, suffix: &str) -> Option<u128> {
    let factor: u128 = match suffix {
        "n" => return Some(number.div_ceil(1_000_000_000)),
        "u" => return Some(number.div_ceil(1_000_000)),
        "m" => return Some(number.div_ceil(1_000)),
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn every_suffix_of_the_api_server_is_read() {
        for (text, expected) in [
            ("8388608", 8 << 20),
            ("8Mi", 8 << 20),
            ("1536Mi", 3 << 29),
            ("2G", 2_000_000_000),
            ("1e9", 1_000_000_000),
            ("1E9", 1_000_000_000),
            ("3E", 3_000_000_000_000_000_000),
            ("1Ei", 1 << 60),
            ("1500m", 2),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_not_read() {
        for text in ["", "Gi", "-1Gi", "1 Gi", "1Xi", "1e", "1e99", "999999Ei"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
