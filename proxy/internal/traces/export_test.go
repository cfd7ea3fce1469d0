package traces

import "encoding/base64"

// RetryMost is the longest pause between attempts.
const RetryMost = retryMost

// Answer reads an answer of a collector in all ways, and returns the spans that it has refused.
func Answer(data []byte) int64 {
	retryDelay(string(data))
	retryDelay(base64.RawStdEncoding.EncodeToString(data))
	statusText(data)
	unframed(data)
	return accepted(data).refused
}
