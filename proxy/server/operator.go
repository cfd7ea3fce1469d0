package server

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/config"
)

// logOperator logs a change by an operator, which is in no file.
func (s *Server) logOperator(what string, from, to any, of ...any) {
	attrs := append([]any{"by", "admin", "what", what}, of...)
	s.log.Info("changed by hand", append(attrs, "from", from, "to", to)...)
}

// percentages are those of a split, in one word.
func percentages(split []config.Share, percent []float64) string {
	parts := make([]string, len(split))
	for i, share := range split {
		parts[i] = fmt.Sprintf("%s:%v", share.Upstream, percent[i])
	}
	return strings.Join(parts, ",")
}
