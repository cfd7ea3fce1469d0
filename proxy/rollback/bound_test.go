package rollback_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/rollback"
)

func TestParseBound(t *testing.T) {
	for text, want := range map[string]rollback.Bound{
		"failures>50":       {Counter: "failures", Most: 50},
		" failures > 50 ":   {Counter: "failures", Most: 50},
		"connect_failed>=1": {Counter: "connect_failed", Most: 0},
		"refused >= 10":     {Counter: "refused", Most: 9},
		"http2_errors>0":    {Counter: "http2_errors", Most: 0},
	} {
		got, err := rollback.ParseBound(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := rollback.ParseBound(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, which is %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":               "there is no '>'",
		"failures":       "there is no '>'",
		"failures<5":     "there is no '>'",
		">5":             "the name of a counter is missing",
		"fail ures>5":    `"fail ures" is not the name`,
		"Failures>5":     `"Failures" is not the name`,
		"failures>":      "the number is missing",
		"failures>=":     "the number is missing",
		"failures>many":  `"many" is not a whole number`,
		"failures>5%":    `"5%" is not a whole number`,
		"failures>1.5":   `"1.5" is not a whole number`,
		"failures>>5":    `">5" is not a whole number`,
		"failures>-1":    "it would always hold",
		"failures>=0":    "it would always hold",
		"failures>9e999": `"9e999" is not a whole number`,
	} {
		_, err := rollback.ParseBound(text)
		if !errors.Is(err, rollback.ErrOptions) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write a counter") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseBound(f *testing.F) {
	f.Add("failures>50")
	f.Add("a >= 1")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := rollback.ParseBound(text)
		if err != nil {
			return
		}
		if again, err := rollback.ParseBound(b.String()); err != nil || again != b || b.Most < 0 {
			t.Errorf("%q is %+v, written %q, which is %+v, %v", text, b, b, again, err)
		}
	})
}
