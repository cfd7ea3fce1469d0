package traffic_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/traffic"
)

func TestHelloResponse(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nDate: now\r\n\r\nHello, World!"
	for text, want := range map[string]struct{ complete, wrong bool }{
		whole:                                  {complete: true},
		whole[:3]:                              {},
		whole[:len(whole)-1]:                   {},
		"HTTP/1.1 404":                         {wrong: true},
		whole[:20] + strings.Repeat("x", 2000): {wrong: true},
	} {
		if complete, err := traffic.HelloResponse([]byte(text)); complete != want.complete || (err != nil) != want.wrong {
			t.Errorf("%.40q: %t, %v", text, complete, err)
		}
	}
}
