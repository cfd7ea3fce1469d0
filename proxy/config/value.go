package config

import (
	"fmt"

	clients "github.com/penstock/penstock/proxy/internal/source" // a source is a file here
	"github.com/penstock/penstock/proxy/sockopt"
)

// A Pos is a position in a file. Lines and columns count from 1, columns in characters. The
// zero Pos is that of a default, which was not written.
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

// An Address is the destination of a connection.
type Address = sockopt.Address

// A Rule matches clients by their source.
type Rule = clients.Rule

// A Path is the absolute name of a file. In a file, a relative path is relative to the
// directory of that file. Empty: none.
type Path string

// A Secret is a text that is written in a file, or comes from another file or an environment
// variable that it names.
type Secret struct {
	// Value is the secret itself.
	Value string
	// Source is the text as it was written, if that was file:PATH or had a ${VARIABLE}. It is
	// shown instead of Value.
	Source string
}

// String returns the text that may be shown.
func (s Secret) String() string {
	if s.Source != "" {
		return s.Source
	}
	return s.Value
}

// Content is the bytes of a file.
type Content struct {
	Path  Path // empty: none
	Bytes []byte
}
