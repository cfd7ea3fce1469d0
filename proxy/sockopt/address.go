package sockopt

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock/penstock/proxy/display"
)

// ErrAddress is wrapped by every error of [Parse]. Such an error is one line that ends with a
// valid alternative.
var ErrAddress = errors.New("invalid address")

// maxPath is the longest path of a unix socket: sun_path of unix(7) without its terminating
// zero.
const maxPath = 107

// An Address is an address to listen on or to connect to.
type Address struct {
	// Network is "tcp" or "unix".
	Network string
	// Name is the address in the form of package net: host:port, or a path, or @name for a
	// unix socket in the abstract namespace.
	Name string
	// Mode is the permissions of the path of a unix listener; 0 leaves them to the umask.
	Mode fs.FileMode
}

// Parse reads an address: host:port, :port, [ipv6]:port, unix:/path,
// unix:/path?mode=0660 or unix:@name. The port may be a service's name.
func Parse(spec string) (Address, error) {
	if display.Check(spec, len(spec)) != nil {
		return Address{}, invalid(start(spec), "write printable characters")
	}
	if path, ok := strings.CutPrefix(spec, "unix:"); ok {
		return parseUnix(spec, path)
	}
	return parseTCP(spec)
}

// String returns the address in the form of [Parse].
func (a Address) String() string {
	switch {
	case a.Network != "unix":
		return a.Name
	case a.Mode != 0:
		return fmt.Sprintf("unix:%s?mode=%04o", a.Name, a.Mode)
	default:
		return "unix:" + a.Name
	}
}

// Abstract reports whether a is a unix socket without a path in the file system.
func (a Address) Abstract() bool {
	return a.Network == "unix" && strings.HasPrefix(a.Name, "@")
}

// maxHost is the longest DNS name. The zone of an address may make it longer.
const maxHost = 255

// start returns the part of an invalid address that an error quotes.
func start(spec string) string {
	if len(spec) <= maxHost {
		return spec
	}
	return strings.ToValidUTF8(spec[:maxHost], "") + "…"
}

func parseTCP(spec string) (Address, error) {
	if len(spec) > maxHost+len(":65535")+len("[]") {
		return Address{}, invalid(start(spec), "a name can have at most %d bytes: write a shorter name", maxHost)
	}
	if scheme, rest, ok := strings.Cut(spec, "://"); ok {
		return Address{}, invalid(spec, "there is no scheme %q: write %s", scheme+"://", rest)
	}
	if strings.Contains(spec, ",") {
		return Address{}, invalid(spec, "repeat the flag for each address")
	}
	host, port, err := net.SplitHostPort(spec)
	if err != nil {
		return Address{}, invalid(spec, "write %s", suggestion(spec))
	}
	n, err := strconv.Atoi(port)
	if err != nil && port != "" {
		n, err = net.LookupPort("tcp", port)
	}
	switch {
	case err != nil:
		return Address{}, invalid(spec, "write the port as a number")
	case n < 0 || n > 65535:
		return Address{}, invalid(spec, "write a port from 0 to 65535")
	}
	return Address{Network: "tcp", Name: net.JoinHostPort(host, strconv.Itoa(n))}, nil
}

// suggestion returns a likely correction of a spec that is not host:port.
func suggestion(spec string) string {
	if n, err := strconv.Atoi(spec); err == nil && n >= 0 && n <= 65535 {
		return fmt.Sprintf(":%d, or 127.0.0.1:%d for this machine only", n, n)
	}
	if i := strings.LastIndexByte(spec, ':'); i > 0 && net.ParseIP(spec[:i]) != nil && strings.Contains(spec[:i], ":") {
		return net.JoinHostPort(spec[:i], spec[i+1:])
	}
	if ip := net.ParseIP(spec); ip != nil {
		return net.JoinHostPort(spec, "8080") + " (with the port you want)"
	}
	if strings.HasPrefix(spec, "/") || strings.HasPrefix(spec, "./") {
		return "unix:" + spec
	}
	return "host:port, such as 127.0.0.1:8080, :8080 or [::1]:8080, or unix:/path"
}

func parseUnix(spec, rest string) (Address, error) {
	path, query, _ := strings.Cut(rest, "?")
	a := Address{Network: "unix", Name: path}
	switch {
	case path == "" || path == "@":
		return Address{}, invalid(spec, "write unix:/path, or unix:@name for an abstract socket")
	case len(path) > maxPath:
		return Address{}, invalid(start(spec), "the path has %[2]d bytes, and the kernel allows at most %[1]d: write a shorter path", maxPath, len(path))
	case query == "":
		return a, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil || len(values) != 1 || len(values["mode"]) != 1 || a.Abstract() {
		return Address{}, invalid(spec, "after the path only its mode can follow: write unix:/path?mode=0660")
	}
	mode, err := strconv.ParseUint(values.Get("mode"), 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return Address{}, invalid(spec, "write the mode in octal, such as unix:%s?mode=0660", path)
	}
	a.Mode = fs.FileMode(mode)
	return a, nil
}

func invalid(spec, format string, args ...any) error {
	return fmt.Errorf("%w %q: %s", ErrAddress, spec, fmt.Sprintf(format, args...))
}
