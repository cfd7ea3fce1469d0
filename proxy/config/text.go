package config

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/nearest"
	"github.com/penstock/penstock/proxy/sockopt"
)

// stringForm returns how a string with that meaning is written.
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
		return complain("write "+f.key+": http, and tls: true", "%s is one of %s, not %q", f.key, strings.Join(f.enum, ", "), text)
	}
	if instead := formerFramings[text]; instead != "" && slices.Contains(f.enum, compare.GRPC) {
		return complain(instead, "framing: %s of compare was removed", text)
	}
	if meant := closest(text, f.enum); meant != "" {
		fix = didYouMean(meant)
	}
	return complain(fix, "%s is one of %s, not %q", f.key, strings.Join(f.enum, ", "), text)
}

// maxName is the longest name of anything.
const maxName = nearest.Longest

// checkName requires a name that can be part of a metric's label, a path and a flag.
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

// checkCongestion requires a name as the kernel's modules have them; empty is that of the system.
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
		return complain("write printable characters", "%q has characters that cannot be seen", text)
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
			return complain("write a name, *. and a name, or * alone", "%q: * stands for the part before a dot and a name", text)
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
		return complain("write it in Punycode (xn--…)", "no host name")
	case !sockopt.IsHostname(name):
		return complain(fix, "no host name")
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

// checkRequestPath requires a path as it is compared, or one with /* at its end.
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
