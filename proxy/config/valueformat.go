package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/topology"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// A valueFormat describes how values of one kind are written.
type valueFormat struct {
	name  string // in the reference
	style style
	// set reads text into v. It uses the decoder for data outside of the text. For a default,
	// which needs no such data, the decoder is nil.
	set func(d *decoder, f *field, v reflect.Value, text string) *complaint
	// show returns the text that set reads.
	show func(v reflect.Value) string
	// pattern matches the text in the schema. It may accept invalid text.
	pattern string
	// most is the largest integer of styleWordOrInteger; the least is 0.
	most float64
}

// A style is the YAML scalar that a value must be. Any may be text with a ${VARIABLE}.
type style int

const (
	styleText     style = iota
	styleInteger        // 5
	styleNumber         // 0.5, 5
	styleBoolean        // true, false
	styleDuration       // text, or 0
	styleSize           // text, or an integer

	styleWordOrInteger // the same, with a meaning of its own for each integer
)

// A complaint is an error in a text and its fix.
type complaint struct {
	message, fix string
	secret       bool // the line of the value is not shown
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
				fix = "write it as a part of 1: " + strconv.FormatFloat(p/100, 'g', 6, 64)
			}
		}
		return complain(fix, "%q is not a number", text)
	}
	v.SetFloat(n)
	return nil
}

// setRule reads a rule for clients: a network, or a word.
func setRule(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	var rule Rule
	var c *complaint
	switch {
	case text == "all":
		rule = clients.All()
	case text == "unix":
		rule = clients.UnixClients()
	case strings.HasPrefix(text, "unix"):
		rule, c = parseUnixRule(text)
	default:
		rule, c = parseNetwork(text)
	}
	if c == nil {
		v.Set(reflect.ValueOf(rule))
	}
	return c
}

// parseUnixRule reads unix:uid=NUMBER or unix:gid=NUMBER.
func parseUnixRule(text string) (Rule, *complaint) {
	kind, number, _ := strings.Cut(strings.TrimPrefix(text, "unix:"), "=")
	id, err := strconv.ParseUint(number, 10, 32)
	switch {
	case kind != "uid" && kind != "gid":
		return Rule{}, complain("write unix for all clients of unix sockets, unix:uid=1000 or unix:gid=1000 for some", "%q names no clients", text)
	case err != nil || id == 1<<32-1: // which no user and no group has
		return Rule{}, complain("write a number, as id(1) prints it, such as unix:"+kind+"=1000", "%q is not the number of a user or a group", number)
	case kind == "uid":
		return clients.UnixUser(uint32(id)), nil
	}
	return clients.UnixGroup(uint32(id)), nil
}

func parseNetwork(text string) (Rule, *complaint) {
	fix := "write 10.0.0.0/8, 2001:db8::/32, one address, unix or all"
	if strings.HasPrefix(text, "uid=") || strings.HasPrefix(text, "gid=") {
		fix = "write unix:" + text
	}
	prefix, err := clients.ParsePrefix(text, fix)
	if bad := new(clients.PrefixError); errors.As(err, &bad) {
		return Rule{}, &complaint{message: bad.Problem, fix: bad.Fix}
	}
	return clients.Prefix(prefix), nil
}

func setAddr(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return complain("write 10.0.0.1 or 2001:db8::1", "%q is not an IP address", text)
	}
	v.Set(reflect.ValueOf(addr.Unmap()))
	return nil
}
