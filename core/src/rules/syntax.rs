//! How names and values have to be written; the twins of the patterns that the API server knows.

/// Lower-case letters, digits and dashes, a letter first and no dash last.
pub(super) fn is_service_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(fits) && !text.ends_with('-')
}

/// A key of a label or annotation: a name, and a DNS name with a slash before it if need be.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_key_name(name),
        None => is_key_name(text),
    }
}

pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_key_name(text)
}

/// A path of lower-case parts, with a host and a port before it if need be, and neither tag nor digest.
pub(super) fn is_repository(text: &str) -> bool {
    let is_part = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        !part.is_empty() && part.bytes().all(fits)
    };
    let is_host = |host: &str| {
        let (name, port) = host.split_once(':').unwrap_or((host, "0"));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        !name.is_empty() && name.bytes().all(fits) && !port.is_empty() && is_digits(port)
    };
    match text.split_once('/') {
        Some((first, rest)) => (is_host(first) || is_part(first)) && rest.split('/').all(is_part),
        None => is_part(text),
    }
}

/// Hours, minutes and seconds, each above zero and any of them left out, but not all.
pub(super) fn is_time(text: &str) -> bool {
    let mut rest = text;
    for unit in ['h', 'm', 's'] {
        if let Some((number, after)) = rest.split_once(unit) {
            if !is_count(number, 6) {
                return false;
            }
            rest = after;
        }
    }
    rest.is_empty() && !text.is_empty()
}

/// A number above zero, without leading zeros.
pub(super) fn is_count(text: &str, most_digits: usize) -> bool {
    !text.is_empty() && text.len() <= most_digits && !text.starts_with('0') && is_digits(text)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_key_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let at_ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63 && text.starts_with(at_ends) && text.ends_with(at_ends) && text.bytes().all(fits)
}

pub(super) fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels_are_told_from_what_kubernetes_refuses() {
        for good in ["app", "example.org/app", "a-b.c/D_e.f", "1"] {
            assert!(is_key(good), "{good}");
        }
        for bad in
            ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "Example.org/a", "a..b/c", &"a".repeat(64)]
        {
            assert!(!is_key(bad), "{bad}");
        }
    }

    #[test]
    fn repositories_have_neither_tag_nor_digest() {
        for good in
            ["etcd", "bitnami/etcd", "quay.io/coreos/etcd", "localhost:5000/a/b_c.d-e", "Registry/etcd"]
        {
            assert!(is_repository(good), "{good}");
        }
        for bad in [
            "",
            "etcd:v3.5.21",
            "etcd:3",
            "quay.io/coreos/etcd:v3",
            "a@sha256:0",
            "a//b",
            "a/",
            "a:/b",
            "a b",
            "A",
        ] {
            assert!(!is_repository(bad), "{bad}");
        }
    }

    #[test]
    fn times_name_their_units_from_hours_down() {
        for good in ["30m", "8h", "1h30m", "90s", "1h1s", "1h2m3s"] {
            assert!(is_time(good), "{good}");
        }
        for bad in ["", "5", "0h", "m", "1d", "30m1h", "1h 30m", "-1h", "01h", "1.5h", "1000000h", "1h1h"] {
            assert!(!is_time(bad), "{bad}");
        }
    }
}
