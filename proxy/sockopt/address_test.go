package sockopt_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/sockopt"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]sockopt.Address{
		"127.0.0.1:0":            {Network: "tcp", Name: "127.0.0.1:0"},
		":8080":                  {Network: "tcp", Name: ":8080"},
		"[::1]:80":               {Network: "tcp", Name: "[::1]:80"},
		"localhost:http":         {Network: "tcp", Name: "localhost:80"},
		"unix:/run/p.sock":       {Network: "unix", Name: "/run/p.sock"},
		"unix:p,q.sock":          {Network: "unix", Name: "p,q.sock"},
		"unix:/p?mode=0660":      {Network: "unix", Name: "/p", Mode: 0o660},
		"unix:/p?mode=600":       {Network: "unix", Name: "/p", Mode: 0o600},
		"unix:@penstock":         {Network: "unix", Name: "@penstock"},
		"[fe80::1%lo]:65535":     {Network: "tcp", Name: "[fe80::1%lo]:65535"},
		"backend.example:000443": {Network: "tcp", Name: "backend.example:443"},
	} {
		got, err := sockopt.Parse(spec)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", spec, got, err, want)
		}
		if again, err := sockopt.Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v, want %+v again", got, again, err, got)
		}
	}
}

func TestParseSaysWhatToWrite(t *testing.T) {
	for spec, want := range map[string]string{
		"":                                  "write host:port",
		"8080":                              "write :8080, or 127.0.0.1:8080",
		"::1":                               "write [::1]:8080",
		"10.0.0.1":                          "write 10.0.0.1:8080",
		"/run/p.sock":                       "write unix:/run/p.sock",
		"http://10.0.0.1:80":                "write 10.0.0.1:80",
		"a:80,b:80":                         "repeat the flag",
		"a:65536":                           "from 0 to 65535",
		"a:-1":                              "from 0 to 65535",
		"a:":                                "write the port as a number",
		"a:no-such-service":                 "write the port as a number",
		"unix:":                             "write unix:/path",
		"unix:@":                            "write unix:/path",
		"unix:/p?mode=0888":                 "write the mode in octal, such as unix:/p?mode=0660",
		"unix:/p?mode=01777":                "write the mode in octal",
		"unix:/p?mode=0":                    "write the mode in octal",
		"unix:/p?owner=me":                  "write unix:/path?mode=0660",
		"unix:/p?mode=0600&owner=me":        "write unix:/path?mode=0660",
		"unix:@p?mode=0600":                 "write unix:/path?mode=0660",
		"unix:/p?mode=0600&mode=0666":       "write unix:/path?mode=0660",
		"unix:/" + strings.Repeat("p", 107): "the path has 108 bytes",
		"unix:/a\nb":                        "write printable characters",
		"a\x1bb:80":                         "write printable characters",
		"a\u202eb:80":                       "write printable characters",
		"\xff:80":                           "write printable characters",
		strings.Repeat("a", 300) + ":80":    "write a shorter name",
		strings.Repeat("\xff", 3000):        "write printable characters",
		"unix:" + strings.Repeat("p", 3000): "the path has 3000 bytes",
	} {
		_, err := sockopt.Parse(spec)
		if !errors.Is(err, sockopt.ErrAddress) || !strings.Contains(err.Error(), want) || display.Text(err.Error()) != err.Error() || len(err.Error()) > 1200 {
			t.Errorf("Parse(%q): %v, want one line with %q", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{"127.0.0.1:0", ":http", "[::1]:80", "unix:/p?mode=0660", "unix:@a", "unix:?", "a:b:c", "://"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		a, err := sockopt.Parse(spec)
		if err != nil {
			return
		}
		if a.Mode&^fs.ModePerm != 0 {
			t.Fatalf("Parse(%q): mode %v", spec, a.Mode)
		}
		if again, err := sockopt.Parse(a.String()); err != nil || again != a {
			t.Fatalf("Parse(%q) = %+v, but Parse(%q) = %+v, %v", spec, a, a, again, err)
		}
	})
}
