package sockets

import (
	"bytes"
	"io"
	"testing"
)

// Expect reads as many bytes as want has, and ends the test if they differ.
func Expect[B ~string | ~[]byte](t testing.TB, from io.Reader, want B) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(from, got)
	same(t, got[:n], []byte(want), err)
}

// ExpectAll is [Expect] for all bytes up to the end of file.
func ExpectAll[B ~string | ~[]byte](t testing.TB, from io.Reader, want B) {
	t.Helper()
	got, err := io.ReadAll(from)
	same(t, got, []byte(want), err)
}

func same(t testing.TB, got, want []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %.100q, and the error %v; want %d bytes, %.100q", len(got), got, err, len(want), want)
	}
}
