package match

import (
	"fmt"
	"strings"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
)

// Pattern checks an element of [Route.SNI], and returns it as it is compared: in lower case,
// without a dot at its end.
func Pattern(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	name := strings.TrimSuffix(strings.ToLower(s), ".")
	host := strings.TrimPrefix(name, "*.")
	if strings.Contains(host, "*") {
		return "", fmt.Errorf("%q: a wildcard must be the whole first label; write *.example.com", s)
	}
	if len(host) > 253 {
		return "", fmt.Errorf("%q: a name has at most 253 characters", s)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return "", fmt.Errorf("%q is no name of a host; write shop.example.com, or *.example.com", s)
		}
	}
	for _, c := range host {
		if !(c == '-' || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z') {
			return "", fmt.Errorf("%q: %q is in no name of a host; write the name as it is on the wire (xn--)", s, c)
		}
	}
	return name, nil
}

// PathPattern checks an element of [Route.Path], and returns it as it is compared.
func PathPattern(s string) (string, error) {
	exact, below := s, ""
	if parent, ok := strings.CutSuffix(s, "/*"); ok {
		exact, below = parent+"/", "*"
	}
	path, ok := firstbytes.CanonicalPath(exact)
	if !ok || strings.Contains(exact, "*") {
		return "", fmt.Errorf("%q is no path; write /status, or /api/* for all paths below /api", s)
	}
	return path + below, nil
}
