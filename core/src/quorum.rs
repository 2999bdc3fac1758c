//! Majority arithmetic.

/// How many of so many voters must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}
