package traces

// RetryMost is the longest pause between attempts.
const RetryMost = retryMost
