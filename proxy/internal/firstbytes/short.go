package firstbytes

import (
	"errors"

	"github.com/penstock/penstock/proxy/clienthello"
)

const (
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // RFC 9113, 3.4
	sshPrefix = "SSH-"                             // RFC 4253, 4.2
)

// lookTLS reads the whole ClientHello. Bytes that begin like one are waited for as their length says, though fewer may
// show that they are none.
func lookTLS(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, err := clienthello.Length(b)
	if err == nil && need > len(b) {
		return need
	}
	if err == nil {
		f.Hello, err = clienthello.Parse(b)
	}
	switch {
	case err == nil:
		f.verdicts[TLS] = Yes
	case errors.Is(err, clienthello.ErrNotTLS):
		f.verdicts[TLS] = No
	default:
		f.verdicts[TLS], f.HelloErr = f.doubt(err.Error()), err
	}
	return 0
}

func lookHTTP2(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, f.verdicts[HTTP2] = lookPrefix(b, preface)
	return need
}

func lookSSH(_ *Recogniser, b []byte, f *Facts) (need int) {
	need, f.verdicts[SSH] = lookPrefix(b, sshPrefix)
	return need
}

// lookPrefix says whether b begins with a prefix.
func lookPrefix(b []byte, prefix string) (need int, v Verdict) {
	n := min(len(b), len(prefix))
	switch {
	case string(b[:n]) != prefix[:n]:
		return 0, No
	case n < len(prefix):
		return n + 1, Open // the next byte may be another
	}
	return 0, Yes
}
