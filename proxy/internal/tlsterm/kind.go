package tlsterm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// A FailureKind is why a handshake failed.
type FailureKind uint8

const (
	Other       FailureKind = iota // none of those below
	Timeout                        // it was not done in time
	Busy                           // its turn did not come in time
	Closed                         // the peer has closed or reset the connection, or we did
	NotTLS                         // the peer does not speak TLS
	Version                        // no version that both speak
	Cipher                         // no cipher suite, curve or signature that both know
	Protocol                       // no application protocol that both speak (ALPN)
	Uncertified                    // the peer showed no certificate, or one that is not accepted
	Alert                          // the peer refused; a certificate that it does not trust, as a rule
	Kinds                          // how many there are
)

var kinds = [Kinds]string{"other", "timeout", "busy", "closed", "not_tls", "version", "cipher", "protocol", "certificate", "alert"}

// String is a word, fit for the name of a counter.
func (k FailureKind) String() string { return kinds[k] }

// kindOf sorts the errors of crypto/tls. Many of them have no type, only words; a test meets
// each of them.
func kindOf(err error) FailureKind {
	var header tls.RecordHeaderError
	var op *net.OpError
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, errBusy):
		return Busy
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.As(err, &header):
		return NotTLS
	case errors.As(err, &verify), errors.As(err, &authority):
		return Uncertified
	case errors.As(err, &op) && op.Op == "remote error":
		return Alert
	case closed(err):
		return Closed
	default:
		return kindOfWords(err.Error())
	}
}

func closed(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func kindOfWords(text string) FailureKind {
	for _, each := range []struct {
		words string
		kind  FailureKind
	}{
		{"unsupported versions", Version},
		{"unsupported protocol version", Version},
		{"protocol version", Version},
		{"unsupported application protocol", Protocol},
		{"application protocol", Protocol},
		{"didn't provide a certificate", Uncertified},
		{"certificate", Uncertified},
		{"cipher suite", Cipher},
		{"signature", Cipher},
		{"key exchange", Cipher},
		{"curve", Cipher},
	} {
		if strings.Contains(text, each.words) {
			return each.kind
		}
	}
	return Other
}
