package discovery_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/discovery"
)

func TestConfigurationsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		want string
		cfg  discovery.DNSConfig
	}{
		{"write a domain name", discovery.DNSConfig{Port: 1}},
		{"write a domain name", discovery.DNSConfig{Name: "db example", Port: 1}},
		{"write a domain name", discovery.DNSConfig{Name: strings.Repeat("x", 64) + ".example", Port: 1}},
		{"an address needs no DNS", discovery.DNSConfig{Name: "10.0.0.1", Port: 1}},
		{"write A, AAAA, A+AAAA or SRV", discovery.DNSConfig{Name: "db.example", Type: "MX", Port: 1}},
		{"write no port", discovery.DNSConfig{Name: "db.example", Type: "SRV", Port: 1}},
		{"from 1 to 65535", discovery.DNSConfig{Name: "db.example", Port: 65536}},
		{"from 1 to 65535", discovery.DNSConfig{Name: "db.example"}},
		{"no less than min_ttl", discovery.DNSConfig{Name: "db.example", Port: 1, MinTTL: time.Hour}},
		{"no less than min_ttl", discovery.DNSConfig{Name: "db.example", Port: 1, MinTTL: -1}},
		{"write an IP address", discovery.DNSConfig{Name: "db.example", Port: 1, Servers: []string{"ns.example"}}},
		{"write an IP address", discovery.DNSConfig{Name: "db.example", Port: 1, Servers: []string{"10.0.0.1:0"}}},
	} {
		_, err := discovery.NewDNS(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want one line with %q", c.cfg, err, c.want)
		}
	}
}

// TestResolvConf: the file is read again when it has changed.
func TestResolvConf(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		if err := os.WriteFile(conf+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(conf+".new", conf); err != nil {
			t.Fatal(err)
		}
	}
	write("search example\nnameserver 10.1.2.3\nnameserver fd00::53\n")
	s := discovery.NewServers(conf)
	equal(t, strings.Join(s.Order(), " "), "10.1.2.3:53 [fd00::53]:53")
	write("nameserver 10.1.2.4\n")
	equal(t, strings.Join(s.Order(), " "), "10.1.2.4:53")
	write("# none\n")
	equal(t, strings.Join(s.Order(), " "), "127.0.0.1:53")
	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	equal(t, strings.Join(s.Order(), " "), "127.0.0.1:53")
	write("nameserver 10.1.2.5\n")
	equal(t, strings.Join(s.Order(), " "), "10.1.2.5:53")
}
