package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// ErrEndpoint is wrapped by the error of an endpoint that has not accepted an [SSLRequest].
var ErrEndpoint = errors.New("no TLS at the endpoint")

// What an endpoint has done in place of an answer; both wrap [ErrEndpoint].
var (
	ErrUnanswered = fmt.Errorf("%w: it closed the connection instead of answering the SSLRequest", ErrEndpoint)
	ErrNoAnswer   = fmt.Errorf("%w: it did not answer the SSLRequest in time", ErrEndpoint)
)

// CheckAnswer returns the error of an answer to an SSLRequest. b has all bytes that have come so far, at least one.
// Bytes behind an S are not the endpoint's, or would be taken for encrypted ones (CVE-2021-23222).
func CheckAnswer(b []byte) error {
	switch {
	case len(b) == 1 && b[0] == Accepted:
		return nil
	case b[0] == Accepted:
		return fmt.Errorf("%w: it sent more bytes after its S, before TLS", ErrEndpoint)
	case len(b) == 1 && b[0] == Declined:
		return fmt.Errorf("%w: it answered N to the SSLRequest", ErrEndpoint)
	case b[0] == 'E':
		return fmt.Errorf("%w: it answered the SSLRequest with an error", ErrEndpoint)
	}
	return fmt.Errorf("%w: it answered %q to the SSLRequest", ErrEndpoint, b[:1])
}

// Negotiate asks the server of a connection for TLS, which begins next. It waits; the caller sets deadlines. It takes one
// byte of the answer, so whatever comes behind it must be TLS.
func Negotiate(conn net.Conn) error {
	if _, err := conn.Write(Request); err != nil {
		return fmt.Errorf("send the SSLRequest: %w", err)
	}
	var answer [1]byte
	switch _, err := io.ReadFull(conn, answer[:]); {
	case errors.Is(err, io.EOF):
		return ErrUnanswered
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrNoAnswer
	case err != nil:
		return fmt.Errorf("read the answer to the SSLRequest: %w", err)
	}
	return CheckAnswer(answer[:])
}

// Read reads one message from a connection, to the byte, and returns it with its bytes. It waits; the caller sets
// deadlines. A Hello is [ErrNotPostgres].
func Read(conn io.Reader) (Message, []byte, error) {
	b := make([]byte, requestSize, 256)
	if _, err := io.ReadFull(conn, b); err != nil {
		return Message{}, nil, err
	}
	n, err := Length(b)
	if err != nil || n < requestSize {
		return Message{}, nil, ErrNotPostgres
	}
	if n > cap(b) {
		b = append(make([]byte, 0, n), b...)
	}
	b = b[:n]
	if _, err := io.ReadFull(conn, b[requestSize:]); err != nil {
		return Message{}, nil, err
	}
	m, err := Parse(b)
	return m, b, err
}
