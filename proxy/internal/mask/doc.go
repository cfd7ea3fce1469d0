// Package mask replaces card numbers, tokens, e-mail addresses and matches of patterns in a stream of bytes by
// asterisks, with as many bytes as there were. Its result does not depend on how the stream is cut into pieces.
package mask
