package lb

import "github.com/zeebo/xxh3"

// KeyOf returns the [Request.Key] of a text: the same for the same text on every node, and 0 for the empty one alone.
func KeyOf(text string) uint64 {
	if text == "" {
		return 0
	}
	if h := xxh3.HashString(text); h != 0 {
		return h
	}
	return 1
}
