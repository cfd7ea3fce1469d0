package admin

import (
	"log/slog"
	"strings"
)

// An errorLog logs the errors of net/http: those of clients' handshakes for debugging, for clients may
// cause as many as they like, and others as warnings.
type errorLog struct{ log *slog.Logger }

// Write logs one line.
func (l *errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "TLS handshake error") {
		l.log.Debug(text)
	} else {
		l.log.Warn(text)
	}
	return len(line), nil
}
