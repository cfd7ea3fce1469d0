package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/config"
)

// A grammar draws configurations by the tags of package config, so that new keys are drawn as
// well. Values are plain ones, those at the ends of the range of a key, and some that look
// valid and are not.
type grammar struct {
	t         *rapid.T
	dir       string // directory for sockets
	upstreams int    // u0 and so on
	counts    map[string]int
}

// text draws a configuration. PORT0 to PORT2 in it stand for ports.
func (g *grammar) text() string {
	g.upstreams, g.counts = rapid.IntRange(1, 3).Draw(g.t, "upstreams"), map[string]int{}
	text, err := json.MarshalIndent(g.object("", reflect.TypeFor[config.Config]()), "", "  ")
	if err != nil {
		g.t.Fatal(err)
	}
	return string(text)
}

// chance is true once in so many times, and never in the simplest case.
func (g *grammar) chance(of int) bool { return rapid.IntRange(0, of-1).Draw(g.t, "chance") == of-1 }

// mostly draws one of of, and sometimes one of odd.
func (g *grammar) mostly(odd []string, of ...string) string {
	if g.chance(40) {
		return pick(g, odd...)
	}
	return pick(g, of...)
}

func pick[T any](g *grammar, of ...T) T { return rapid.SampledFrom(of).Draw(g.t, "one") }

// usual are keys, by the end of their path, that a useful configuration needs.
var usual = []string{"listeners", "upstreams", "upstreams.endpoints", "listeners.upstream", "routes.upstream", "dns.port", "fallback.upstream"}

// object draws a struct as a mapping: the required keys, and some of the optional ones.
func (g *grammar) object(path string, typ reflect.Type) map[string]any {
	m := make(map[string]any)
	for i := range typ.NumField() {
		sf := typ.Field(i)
		key, ok := sf.Tag.Lookup("key")
		at := strings.TrimPrefix(path+"."+key, ".")
		often := false
		for _, end := range usual {
			often = often || at == end || strings.HasSuffix(at, "."+end)
		}
		if ok && (sf.Tag.Get("required") != "" || often || g.chance(7)) {
			m[key] = g.value(at, sf.Type, sf.Tag)
		}
	}
	g.agree(path, m)
	return m
}

func (g *grammar) value(path string, typ reflect.Type, tag reflect.StructTag) any {
	switch typ.Kind() {
	case reflect.Pointer:
		if tag.Get("on") != "" && g.chance(3) {
			return pick[any](g, config.Off, false)
		}
		return g.value(path, typ.Elem(), tag)
	case reflect.Slice, reflect.Array:
		return g.list(path, typ, tag)
	case reflect.Struct:
		if _, ok := typ.FieldByName("Pos"); ok && typ != reflect.TypeFor[config.Bind]() {
			return g.object(path, typ)
		}
	}
	return g.scalar(path, typ, tag)
}

func (g *grammar) list(path string, typ reflect.Type, tag reflect.StructTag) any {
	n := rapid.IntRange(1, 3).Draw(g.t, "length")
	switch {
	case path == "upstreams":
		n = g.upstreams
	case typ.Kind() == reflect.Array:
		n = typ.Len()
	}
	ranges := strings.Fields(tag.Get("range"))
	list := make([]any, n)
	for i := range list {
		one := tag
		if len(ranges) > 1 {
			one = reflect.StructTag(strings.Replace(string(tag), tag.Get("range"), ranges[i], 1))
		}
		list[i] = g.value(path, typ.Elem(), one)
	}
	if tag.Get("single") != "" && n == 1 && g.chance(2) {
		return list[0]
	}
	return list
}

func (g *grammar) scalar(path string, typ reflect.Type, tag reflect.StructTag) any {
	if words := strings.Fields(tag.Get("enum")); len(words) > 0 {
		return pick(g, words...)
	}
	if text, ok := g.textual(path, typ, tag); ok {
		return text
	}
	lo, hi, _ := strings.Cut(tag.Get("range"), "..")
	dflt := tag.Get("default")
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		return g.duration(lo, hi)
	case typ.Kind() == reflect.Bool:
		return rapid.Bool().Draw(g.t, "truth")
	case tag.Get("type") == "size":
		return pick[any](g, "64KiB", "1MiB", hi, lo)
	case tag.Get("type") == "rate":
		return pick[any](g, 0, 1, "1KiB", "64MiB", "10MB/s", hi)
	case typ.Kind() == reflect.Float64:
		number := func(text string) float64 { v, _ := strconv.ParseFloat(text, 64); return v }
		return pick(g, number(lo), number(hi), (number(lo)+number(hi))/2, number(dflt))
	default:
		number := func(text string) int { v, _ := strconv.Atoi(text); return v }
		values := []int{number(lo), number(lo) + 1, number(hi), number(hi) - 1}
		if words := strings.Fields(dflt); len(words) == 1 {
			values = append(values, number(words[0]))
		}
		return pick(g, values...)
	}
}

func (g *grammar) duration(lo, hi string) any {
	of := func(text string) time.Duration { d, _ := time.ParseDuration(text); return d }
	values := []string{lo, hi}
	for _, d := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 5 * time.Second, time.Minute, time.Hour} {
		if d >= of(lo) && d <= of(hi) {
			values = append(values, d.String())
		}
	}
	if text := pick(g, values...); text != "0" {
		return text
	}
	return 0
}

func (g *grammar) textual(path string, typ reflect.Type, tag reflect.StructTag) (text any, ok bool) {
	switch typ {
	case reflect.TypeFor[config.Rule]():
		return g.mostly([]string{"10.1.1.1/8", "unix:uid", "nobody"},
			"0.0.0.0/0", "::/0", "127.0.0.0/8", "127.0.0.1", "2001:db8::/32", "all", "unix", "unix:uid=0", "unix:gid=0"), true
	case reflect.TypeFor[netip.Prefix]():
		return g.mostly([]string{"10.1.1.1/8", "all"}, "0.0.0.0/0", "::/0", "127.0.0.0/8", "127.0.0.1", "10.0.0.0/8", "2001:db8::/32"), true
	case reflect.TypeFor[netip.Addr]():
		return pick(g, "127.0.0.1", "::1", "192.0.2.1", ""), true
	case reflect.TypeFor[config.Bind]():
		return g.bind(path), true
	case reflect.TypeFor[config.Address]():
		if strings.HasSuffix(path, "dns.servers") {
			return "127.0.0.1:1", true
		}
		g.counts["address"]++ // each endpoint has one of its own
		n := strconv.Itoa(g.counts["address"])
		return g.mostly([]string{"*:5", "10.0.0.1.2:6", "[fe80::1]:7", "127.0.0.1"}, "127.0.0.1:"+n, "localhost:"+n, "[::1]:"+n, "unix:"+g.dir+"/none"+n, "unix:@penstock-none"+n), true
	case reflect.TypeFor[config.Path]():
		return g.path(path), true
	case reflect.TypeFor[config.Content]():
		if tag.Get("type") == "module" {
			return g.mostly([]string{"sorry.txt"}, "filter.wasm"), true
		}
		return "sorry.txt", true
	case reflect.TypeFor[config.Secret]():
		return pick(g, "", "PING\r\n", "file:secret"), true
	}
	switch {
	case typ.Kind() == reflect.String:
		return g.word(path, tag), true
	case typ.Kind() == reflect.Struct: // an unknown one
		return tag.Get("eg"), true
	}
	return nil, false
}

func (g *grammar) word(path string, tag reflect.StructTag) string {
	if path == "session_log.to" { // no path of a socket: one file would be there for all that are drawn
		return g.mostly([]string{"", "b c", "${NAME}"}, "lines.log", g.dir+"/lines.log", "syslog+udp://127.0.0.1:9", "syslog+unix:"+g.dir+"/none")
	}
	if path == "lane.devices" {
		return g.mostly([]string{"", "none0"}, "lo")
	}
	switch tag.Get("type") {
	case "name":
		g.counts[path]++
		return fmt.Sprintf("%c%d", path[0], g.counts[path]-1) // l0, u0
	case "upstream":
		return fmt.Sprintf("u%d", rapid.IntRange(0, g.upstreams-1).Draw(g.t, "which"))
	case "endpoint":
		return pick(g, "", "a", "b", "ä €")
	case "servername":
		return pick(g, "*", "*.example.test", "a.example.test", "A.b", "xn--4ca.test", strings.Repeat("a.", 120)+"test")
	case "protocol":
		return pick(g, "h2", "http/1.1", strings.Repeat("x", 255))
	case "domain":
		return pick(g, "localhost", "db.test", "_pg._tcp.db.test", "db.test.")
	case "urlpath":
		return pick(g, "/", "/health?x=y", "/%20", "/ä")
	case "zone":
		return pick(g, "", "a", "eu-1", "${NAME}")
	case "clientkey":
		return g.mostly([]string{"source", "tlv:300", "user name"}, "sni", "tlv:0xe0")
	case "collector":
		return g.mostly([]string{"", "b c"}, "http://127.0.0.1:9", "https://localhost:9/v1/traces")
	case "attribute":
		return g.mostly([]string{"b c"}, "deployment.environment=test")
	case "glob":
		return pick(g, "conf.d/*.yaml", "more.yaml", "checked.yaml")
	}
	return pick(g, "", "a", "b c", "${NAME}")
}

// bind draws an address to listen on; that of the admin API is private.
func (g *grammar) bind(path string) string {
	if strings.HasPrefix(path, "admin") {
		return g.mostly([]string{":PORT0"}, "unix:"+g.dir+"/admin", "unix:"+g.dir+"/admin?mode=0600", "127.0.0.1:PORT0", "[::1]:0", "localhost:0")
	}
	if g.chance(4) {
		return g.mostly([]string{"unix:" + g.dir + "/", "unix:"}, "unix:"+g.dir+"/a", "unix:"+g.dir+"/b?mode=0660", "unix:"+g.dir+"/./a", "unix:@penstock-"+g.dir)
	}
	host := g.mostly([]string{"[::%lo]", "*", "lo", "0", "[fe80::1]", "[ff02::1]", "224.0.0.1", "web.test"},
		"127.0.0.1", "", "0.0.0.0", "[::]", "127.0.0.2", "[::1]", "localhost", "[::ffff:127.0.0.1]")
	return host + ":" + pick(g, "PORT0", "PORT1", "PORT2", "0")
}

// path draws the name of a file that exists and is valid, or not.
func (g *grammar) path(path string) string {
	good := map[string]string{"cert": "cert.pem", "key": "key.pem", "ca": "cert.pem", "client_ca": "cert.pem", "path": "endpoints.yaml"}
	if g.chance(20) {
		return pick(g, "key.pem", "none.pem")
	}
	return good[path[strings.LastIndexByte(path, '.')+1:]]
}

// agree makes keys of a section consistent that exclude or need each other: usually, so that
// the configuration starts, and not always.
func (g *grammar) agree(path string, m map[string]any) {
	if g.chance(30) {
		return
	}
	without := func(if1 string, others ...string) {
		if _, ok := m[if1]; ok {
			for _, other := range others {
				delete(m, other)
			}
		}
	}
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "upstreams":
		without("discover", "endpoints")
		if m["balance_on"] != nil {
			m["balance"] = "maglev"
		}
		// Fallbacks go on to the next one.
		if next, ok := strings.CutPrefix(m["name"].(string), "u"); ok && m["fallback"] != nil {
			if n, _ := strconv.Atoi(next); n+1 < g.upstreams {
				m["fallback"] = map[string]any{"upstream": fmt.Sprintf("u%d", n+1)}
			} else {
				m["fallback"] = map[string]any{"respond": "sorry.txt"}
			}
		}
	case "routes":
		without("split", "upstream")
		shares, _ := m["split"].([]any)
		if n := min(len(shares), g.upstreams, 2); n > 0 {
			for i, share := range shares[:n] {
				share.(map[string]any)["percent"], share.(map[string]any)["upstream"] = 100/n, fmt.Sprintf("u%d", i)
			}
			m["split"] = shares[:n]
		}
	case "discover":
		if without("file", "dns"); len(m) == 0 {
			m["file"] = map[string]any{"path": "endpoints.yaml"}
		}
	case "dns":
		if m["type"] == nil || m["type"] == "SRV" {
			delete(m, "port")
		}
	case "health_check":
		if m["type"] != "http" {
			delete(m, "http")
		}
		without("http", "send", "expect")
		if m["tls"] != true {
			delete(m, "sni")
		}
	case "fallback":
		without("respond", "upstream")
	case "mirror":
		m["percent"] = 0 // or it might be to the upstream of the clients
	case "rewrite":
		m["wasm"] = "filter.wasm"
	case "metrics_by":
		m["key"], m["values"] = "sni", []any{"a.test", "b.test"}
	case "listeners":
		if m["tls"] == nil && m["postgres"] == "terminate" {
			delete(m, "postgres")
		}
	case "tls":
		if (m["cert"] == nil) != (m["key"] == nil) && m["certificates"] == nil {
			delete(m, "cert")
			delete(m, "key")
		}
	}
}
