package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/nearest"
	clients "github.com/penstock/penstock/proxy/internal/source" // a source is a file here
	"github.com/penstock/penstock/proxy/sockopt"
)

// A Pos is a position in a file. Lines and columns count from 1, columns in characters. Defaults, which are not
// written in a file, have the zero Pos.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// A Bind is an address to listen on, or the name of a socket that systemd passes.
type Bind struct {
	Pos     Pos
	Address sockopt.Address // valid unless Systemd is set
	Systemd string          // the name that FileDescriptorName= gives, see systemd.socket(5)
}

// Auto reports whether the process chooses the address. Only the admin API has such a Bind.
func (b Bind) Auto() bool { return b.Systemd == "" && b.Address.Network == "" }

// String returns the text as written in a file.
func (b Bind) String() string {
	if b.Auto() {
		return Auto
	}
	if b.Systemd != "" {
		return "systemd:" + b.Systemd
	}
	return b.Address.String()
}

// BindKey returns the same key for the same address of a listener, whatever its mode. Sockets of systemd have no such
// key, because a name may stand for several sockets.
func (ln *Listener) BindKey(at Bind) string {
	at.Address.Mode = 0
	switch {
	case at.Address.Network == "unix" && !at.Address.Abstract():
		at.Address.Name = filepath.Clean(at.Address.Name)
	case at.Address.Network == "tcp" && strings.HasSuffix(at.Address.Name, ":0"): // a listener may have several
		return ln.Name + "#" + fmt.Sprint(slices.Index(ln.Bind, at)) + "#" + at.String()
	}
	return at.String()
}

// An Address is the destination of a connection.
type Address = sockopt.Address

// A Rule matches clients by their source.
type Rule = clients.Rule

// A Path is the absolute name of a file, or empty. A relative path in a file is relative to the directory of that
// file.
type Path string

// A Secret is a text in the configuration, or the content of a file or environment variable that it names.
type Secret struct {
	// Value is the secret itself.
	Value string
	// Source is the text as written, if it is file:PATH or has a ${VARIABLE}. It is shown instead of Value.
	Source string
}

// String returns the text that may be shown.
func (s Secret) String() string {
	if s.Source != "" {
		return s.Source
	}
	return s.Value
}

// Content holds the bytes of a file.
type Content struct {
	Path  Path // empty if there is no file
	Bytes []byte
}

// A valueFormat describes how values of one kind are written.
type valueFormat struct {
	name  string // in the reference
	style style
	// set reads text into v. It uses the decoder for what is not in the text. The decoder is nil for a default, which
	// needs nothing else.
	set func(d *decoder, f *field, v reflect.Value, text string) *complaint
	// show returns the text that set reads.
	show func(v reflect.Value) string
	// pattern matches the text in the schema. It may accept invalid text.
	pattern string
	// most is the largest integer of styleWordOrInteger; the least is 0.
	most float64
}

// A style is the kind of YAML scalar that a value must be. A value of any style may be text with a ${VARIABLE}.
type style int

const (
	styleText     style = iota
	styleInteger        // 5
	styleNumber         // 0.5, 5
	styleBoolean        // true, false
	styleDuration       // text, or 0
	styleSize           // text, or an integer

	styleWordOrInteger // the same, but an integer has its own meaning
)

// A complaint is an error in a text and its fix.
type complaint struct {
	message, fix string
	key          string // key of the section that is wrong; empty for the section itself
	secret       bool   // the line of the value is not shown
}

func complain(fix, format string, args ...any) *complaint {
	return &complaint{message: fmt.Sprintf(format, args...), fix: fix}
}

// formOf returns how values of a type are written, or nil for a struct that is written as a
// mapping. meaning is the tag type, which gives the meaning of a string or an integer.
func formOf(t reflect.Type, meaning string) *valueFormat {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &valueFormat{name: "duration", style: styleDuration, set: setDuration, show: showDuration, pattern: durationPattern}
	case reflect.TypeFor[Rule]():
		return &valueFormat{name: "source", set: setRule, show: showStringer}
	case reflect.TypeFor[netip.Addr]():
		return &valueFormat{name: "IP", set: setAddr, show: showAddr}
	case reflect.TypeFor[Bind]():
		return &valueFormat{name: "address to listen on", set: setBind, show: showStringer}
	case reflect.TypeFor[Address]():
		return &valueFormat{name: "address", set: setAddress, show: showStringer}
	case reflect.TypeFor[Path]():
		return &valueFormat{name: "path", set: setPath, show: reflect.Value.String}
	case reflect.TypeFor[Secret]():
		return &valueFormat{name: "secret", set: setSecret, show: showStringer}
	case reflect.TypeFor[Content]():
		set := setContent
		if meaning == "module" {
			set = setModule
		}
		return &valueFormat{name: "path", set: set, show: func(v reflect.Value) string { return v.Field(0).String() }}
	case reflect.TypeFor[CPUs]():
		return &valueFormat{name: "CPU or range of CPUs", style: styleWordOrInteger, set: setCPUs, show: reflect.Value.String, pattern: cpusPattern, most: topology.Highest}
	case reflect.TypeFor[Node]():
		return &valueFormat{name: "node", style: styleWordOrInteger, set: setNode, show: reflect.Value.String, pattern: nodePattern, most: maxNode}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &valueFormat{name: "boolean", style: styleBoolean, set: setBool, show: func(v reflect.Value) string { return strconv.FormatBool(v.Bool()) }}
	case reflect.Int, reflect.Int64:
		switch show := func(v reflect.Value) string { return showSize(v.Int()) }; meaning {
		case "rate":
			return &valueFormat{name: "size", style: styleSize, set: setRate, show: show, pattern: sizePattern + `(/s)?$`}
		case "size":
			return &valueFormat{name: "size", style: styleSize, set: setSize, show: show, pattern: sizePattern + `$`}
		}
		return &valueFormat{name: "integer", style: styleInteger, set: setInt, show: func(v reflect.Value) string { return strconv.FormatInt(v.Int(), 10) }}
	case reflect.Float64:
		return &valueFormat{name: "number", style: styleNumber, set: setFloat, show: func(v reflect.Value) string { return strconv.FormatFloat(v.Float(), 'g', -1, 64) }}
	case reflect.String:
		return stringForm(meaning)
	}
	return nil
}

func showStringer(v reflect.Value) string { return v.Interface().(fmt.Stringer).String() }

func showAddr(v reflect.Value) string {
	if addr := v.Interface().(netip.Addr); addr.IsValid() {
		return addr.String()
	}
	return ""
}

func setBool(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	switch text {
	case "true", "false":
		v.SetBool(text == "true")
		return nil
	}
	fix := "write true or false"
	switch strings.ToLower(text) {
	case "yes", "on", "y", "1", "true":
		fix = "write true"
	case "no", "off", "n", "0", "false":
		fix = "write false"
	}
	return complain(fix, "%q is not true or false", text)
}

func setInt(_ *decoder, f *field, v reflect.Value, text string) *complaint {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, v.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return complain(f.integers(), "%q is too large", text)
	case err != nil:
		return complain(f.integers(), "%q is not a whole number", text)
	}
	v.SetInt(n)
	return nil
}

func setFloat(_ *decoder, f *field, v reflect.Value, text string) *complaint {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != n || n-n != 0 {
		fix := "write a number such as 0.5"
		if number, ok := strings.CutSuffix(text, "%"); ok {
			fix = "write it without %: " + number
			if p, err := strconv.ParseFloat(number, 64); err == nil && f.unit != "%" {
				fix = "write it as a fraction of 1: " + strconv.FormatFloat(p/100, 'g', 6, 64)
			}
		}
		return complain(fix, "%q is not a number", text)
	}
	v.SetFloat(n)
	return nil
}

// setRule reads a rule for clients: a network, or a word.
func setRule(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	rule, err := clients.ParseRule(text)
	if bad := new(clients.PrefixError); errors.As(err, &bad) {
		return &complaint{message: bad.Problem, fix: bad.Fix}
	}
	v.Set(reflect.ValueOf(rule))
	return nil
}

func setAddr(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return complain("write 10.0.0.1 or 2001:db8::1", "%q is not an IP address", text)
	}
	v.Set(reflect.ValueOf(addr.Unmap()))
	return nil
}

func setBind(d *decoder, f *field, v reflect.Value, text string) *complaint {
	b := v.Addr().Interface().(*Bind)
	if text == f.dflt && text == Auto {
		return nil
	}
	if d != nil {
		b.Pos = d.here.pos()
	}
	if name, ok := strings.CutPrefix(text, "systemd:"); ok {
		if name == "" || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return complain("write the name that FileDescriptorName= gives it, such as systemd:web", "%q names no socket", text)
		}
		b.Systemd = name
		return nil
	}
	addr, c := parseAddress(d, text)
	if c == nil && addr.Network == "tcp" {
		addr.Name, c = bindHost(addr.Name)
	}
	if c == nil {
		b.Address = addr
	}
	return c
}

// bindHost accepts a host that can be listened on without a lookup: an IP address, or
// localhost, which is 127.0.0.1. The addresses of any other name may change at any time.
func bindHost(name string) (string, *complaint) {
	host, port := splitHostPort(name)
	switch addr, err := netip.ParseAddr(host); {
	case host == "":
		return name, nil
	case sockopt.Localhost(host):
		return "127.0.0.1:" + port, nil
	case host == "*":
		return name, complain("write :"+port+", or 0.0.0.0:"+port+" for IPv4 only", "%q is not an address: * is not a host", name)
	case err != nil:
		return name, complain("write an address of this machine, such as 10.0.0.5:"+port+", or :"+port+" for all its addresses", "%q is not an IP address", host)
	default:
		return name, checkAddr(addr, port)
	}
}

// checkAddr rejects addresses that no connection can have.
func checkAddr(addr netip.Addr, port string) *complaint {
	switch {
	case addr.IsMulticast():
		return complain("write another address", "%q is a multicast address, and TCP cannot connect to it", addr)
	case addr.Zone() != "" && addr.WithZone("").IsUnspecified(): // the kernel binds it to all interfaces (net/ipv6/af_inet6.c: __inet6_bind)
		return complain("write [::]:"+port+" for all interfaces, or an address that "+addr.Zone()+" has", "%q does not name addresses of an interface", addr)
	case addr.IsLinkLocalUnicast() && addr.Is6() && addr.Zone() == "":
		return complain(fmt.Sprintf("write its interface too, such as [%v%%eth0]:%s", addr, port), "%q is an address that every interface can have", addr)
	}
	return nil
}

func checkSocketPath(addr Address) *complaint {
	last := addr.Name[strings.LastIndexByte(addr.Name, '/')+1:]
	if !addr.Abstract() && (last == "" || last == "." || last == "..") {
		return complain("write the path of a socket, such as unix:/run/penstock/web.sock", "%q is a directory", addr.Name)
	}
	return nil
}

func setAddress(d *decoder, _ *field, v reflect.Value, text string) *complaint {
	addr, c := parseAddress(d, text)
	if c != nil {
		if meant, what := suggestEndpoint(text); meant != "" {
			c.fix = "write the " + what + " too, such as " + meant
		}
		return c
	}
	if addr.Network == "tcp" {
		c = checkHost(text, addr.Name)
	} else if addr.Mode != 0 {
		c = complain("write it without ?mode=", "%q is an address to connect to, which has no mode", text)
	}
	if c == nil {
		*v.Addr().Interface().(*Address) = addr
	}
	return c
}

// checkHost requires an address or a name, and a port.
func checkHost(text, name string) *complaint {
	host, port := splitHostPort(name)
	switch {
	case host == "":
		return complain("write 127.0.0.1:"+port+" for this machine", "%q has no host", text)
	case port == "0":
		return complain("write the port after the colon, 1 to 65535", "%q has no port", text)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return checkAddr(addr, port)
	}
	host = strings.TrimSuffix(host, ".")
	if c := checkHostname(host); c != nil {
		if !strings.Contains(c.fix, "Punycode") {
			c.fix = "write 10.0.0.12:" + port + ", [2001:db8::12]:" + port + " or db.example:" + port
		}
		return complain(c.fix, "%q has no host: %q is neither an IP address nor a name", text, host)
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return complain("write the four numbers of an IPv4 address, from 0 to 255", "%q is not an IP address", host)
	}
	return nil
}

// suggestEndpoint completes an address that lacks its host or its port, and says which of them is missing. Both
// results are "" if it has no suggestion.
func suggestEndpoint(text string) (meant, missing string) {
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 65535 {
		return "127.0.0.1:" + text, "host"
	}
	if !strings.ContainsAny(text, ":/") && checkHost(text, text+":1") == nil {
		return text + ":8080", "port"
	}
	return "", ""
}

// parseAddress is sockopt.Parse with messages for a file instead of a flag. A relative path becomes absolute.
func parseAddress(d *decoder, text string) (Address, *complaint) {
	if c := checkLine(text); c != nil {
		return Address{}, c
	}
	addr, err := sockopt.Parse(text)
	if err == nil && addr.Network == "unix" && !addr.Abstract() {
		if c := checkSocketPath(addr); c != nil {
			return Address{}, c
		}
		if !filepath.IsAbs(addr.Name) {
			if d != nil {
				addr.Name = d.src.absolute(addr.Name)
			} else {
				addr.Name = absolute(addr.Name)
			}
			text = addr.String()
			addr, err = sockopt.Parse(text) // it may be too long now
		}
	}
	if err == nil {
		return addr, nil
	}
	fix := strings.TrimPrefix(err.Error(), fmt.Sprintf("%v %q: ", sockopt.ErrAddress, text))
	if strings.Contains(text, ",") && !strings.HasPrefix(text, "unix:") {
		fix = "write a list: [" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), ", ") + "]"
	}
	return Address{}, complain(fix, "%q is not an address", text)
}

// splitHostPort splits a name that sockopt.Parse has joined.
func splitHostPort(name string) (host, port string) {
	i := strings.LastIndexByte(name, ':')
	return strings.Trim(name[:i], "[]"), name[i+1:]
}

const (
	durationPattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$|^0$`
	sizePattern     = `^[0-9]+ ?(B|[KMGTP]iB|kB|[MGTP]B)?`
)

func setDuration(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	d, err := time.ParseDuration(text)
	if err == nil && !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-") {
		v.SetInt(int64(d))
		return nil
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return complain(fmt.Sprintf("write %ds, or %dms", n, n), "%q has no unit", text)
	}
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			return complain(fmt.Sprintf("write %dh", n*24), "%q: there is no unit for days", text)
		}
	}
	return complain("write 250ms, 5s, 1m30s or 2h", "%q is not a duration", text)
}

func showDuration(v reflect.Value) string { return ShowDuration(time.Duration(v.Int())) }

// ShowDuration returns a duration as it is written in a file: its String without the zeros at
// the end.
func ShowDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// units of sizes, the largest first.
var units = []struct {
	name string
	n    int64
}{
	{"PiB", 1 << 50},
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"PB", 1e15},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// setRate is setSize for bytes per second.
func setRate(d *decoder, f *field, v reflect.Value, text string) *complaint {
	if c := setSize(d, f, v, strings.TrimSuffix(text, "/s")); c != nil {
		return complain(c.fix, "%q is not a size", text)
	}
	return nil
}

func setSize(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	digits, unit := text, int64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSuffix(number, " "), u.n
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if less, ok := strings.CutSuffix(text, "/s"); ok {
		return complain("write it without /s: "+less, "%q is not a size but a rate", text)
	}
	if err != nil || n < 0 || digits[0] == '+' || n > math.MaxInt64/unit {
		return complain("write 65536, 64KiB or 1MiB", "%q is not a size", text)
	}
	v.SetInt(n * unit)
	return nil
}

func showSize(n int64) string {
	for _, u := range units[:5] {
		if n != 0 && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// stringForm returns the form of a string with this meaning.
func stringForm(meaning string) *valueFormat {
	if meaning == "destination" {
		return &valueFormat{name: "destination", show: reflect.Value.String, set: setDestination}
	}
	name, check := "text", func(string) *complaint { return nil }
	switch meaning {
	case "name", "upstream":
		name, check = meaning, checkName
	case "endpoint":
		name, check = "name", checkLabel
	case "zone":
		name, check = "text", checkLabel
	case "servername":
		name, check = "server name", checkServerName
	case "protocol":
		name, check = "protocol", checkProtocol
	case "requestpath":
		name, check = "path of a request", checkRequestPath
	case "hex":
		name, check = "hexadecimal digits", checkHex
	case "domain":
		name, check = "domain", checkDomain
	case "urlpath":
		name, check = "URL path", checkURLPath
	case "collector":
		name, check = "URL", checkCollector
	case "clientkey":
		name, check = "property of a client", checkClientKey
	case "congestion":
		name, check = "name of a congestion control", checkCongestion
	case "attribute":
		name, check = "attribute", checkAttribute
	case "header":
		name, check = "name of a header", checkHeader
	case "glob":
		name, check = "pattern", checkLine
	case "":
		check = checkLine
	}
	return &valueFormat{name: name, show: reflect.Value.String, set: func(d *decoder, f *field, v reflect.Value, text string) *complaint {
		if len(f.enum) > 0 {
			return setEnum(f, v, text)
		}
		if c := check(text); c != nil {
			return c
		}
		if meaning == "servername" || meaning == "domain" {
			text = strings.ToLower(text)
		}
		v.SetString(text)
		return nil
	}}
}

func setEnum(f *field, v reflect.Value, text string) *complaint {
	for _, word := range f.enum {
		if text == word {
			v.SetString(text)
			return nil
		}
	}
	fix := "write " + enumeration(f.enum, "or")
	if text == "https" && slices.Contains(f.enum, "http") {
		return complain("write "+f.key+": http, and tls: true", "%s must be one of %s, not %q", f.key, strings.Join(f.enum, ", "), text)
	}
	if instead := formerFramings[text]; instead != "" && slices.Contains(f.enum, compare.GRPC) {
		return complain(instead, "framing: %s of compare was removed", text)
	}
	if meant := closest(text, f.enum); meant != "" {
		return complain(didYouMean(meant), "%s %q is unknown", f.key, text)
	}
	return complain(fix, "%s must be one of %s, not %q", f.key, strings.Join(f.enum, ", "), text)
}

// maxName is the longest name of any thing.
const maxName = nearest.Longest

// checkName requires a name that can be a metric's label, a part of a path, and a flag.
func checkName(text string) *complaint {
	bad := strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' || r == '-')
	})
	switch {
	case text == "" || len(text) > maxName:
		return complain("write 1 to 128 letters, digits, _, . or -", "%q is not a name", text)
	case bad >= 0 || text[0] == '-' || text[0] == '.':
		return complain("write letters, digits, _, . or -, the first a letter, digit or _", "%q is not a name", text)
	}
	return nil
}

// checkCongestion requires the name of a congestion control in the form of the kernel's modules. Empty means the
// system's default.
func checkCongestion(text string) *complaint {
	if text == "" {
		return nil
	}
	if c := checkName(text); c != nil || len(text) > sockopt.MaxCongestion {
		return complain(fmt.Sprintf("write a name of at most %d letters, digits, _ or -, such as bbr", sockopt.MaxCongestion), "%.20q is not the name of a congestion control", text)
	}
	return nil
}

// checkLine requires text that can be shown in a line of a log.
func checkLine(text string) *complaint {
	if len(text) > 4096 {
		return complain("write at most 4096 bytes", "%.20q… is %d bytes long", text, len(text))
	}
	if display.Check(text, len(text)) != nil {
		return complain("write printable characters", "%q has characters that are not printable", text)
	}
	return nil
}

// checkLabel applies the rules of endpoints files to the name of an endpoint or a zone.
func checkLabel(text string) *complaint {
	if len(text) > display.MaxName {
		return complain(fmt.Sprintf("write at most %d bytes", display.MaxName), "%.20q… is %d bytes long", text, len(text))
	}
	return checkLine(text)
}

// checkServerName requires a pattern that routes understand: *, *.name or a name.
func checkServerName(text string) *complaint {
	if text == "*" {
		return nil
	}
	name := strings.TrimPrefix(text, "*.")
	if c := checkHostname(name); c != nil {
		if strings.Contains(name, "*") {
			return complain("write a name, *. and a name, or only *", "%q: * must be the whole part before the first dot", text)
		}
		return complain(c.fix, "%q is not a server name", text)
	}
	return nil
}

func checkDomain(text string) *complaint {
	if c := checkHostname(strings.TrimSuffix(text, ".")); c != nil {
		return complain(c.fix, "%q is not a domain", text)
	}
	return nil
}

// checkHostname requires a name by RFC 1123, with underscores allowed as in names of services.
func checkHostname(name string) *complaint {
	fix := "write a name such as shop.example.com"
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }):
		return complain("write it in Punycode (xn--…)", "not a host name")
	case !sockopt.IsHostname(name):
		return complain(fix, "not a host name")
	}
	return nil
}

// checkProtocol requires a name by RFC 7301: 1 to 255 bytes.
func checkProtocol(text string) *complaint {
	if text == "" || len(text) > 255 {
		return complain("write 1 to 255 bytes, such as h2 or http/1.1", "%.20q is not an application protocol", text)
	}
	return checkLine(text)
}

// checkRequestPath requires a path in the form in which paths are compared, or such a path with /* at its end.
func checkRequestPath(text string) *complaint {
	exact := text
	if parent, below := strings.CutSuffix(text, "/*"); below {
		exact = parent + "/"
	}
	if _, ok := firstbytes.CanonicalPath(exact); !ok || strings.Contains(exact, "*") {
		return complain("write /status, or /api/* for all paths below /api", "%q is not the path of a request", text)
	}
	return nil
}

func checkHex(text string) *complaint {
	if _, err := hex.DecodeString(text); err != nil {
		return complain("write two digits for each byte, such as 0300ff", "%.20q is not hexadecimal", text)
	}
	return nil
}

func checkURLPath(text string) *complaint {
	if !strings.HasPrefix(text, "/") {
		return complain("write /"+text, "%q does not begin with /", text)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return complain("write spaces and control characters as %20 and so on", "%q is not a path", text)
	}
	return checkLine(text)
}
