package config

import (
	"fmt"

	"github.com/penstock/penstock/proxy/socket"
	clients "github.com/penstock/penstock/proxy/source" // a source is a file here
)

// A Pos is a place in a file. Lines and columns count from 1, columns in characters.
// The zero Pos is none: what was not written but is a default.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// A Bind is an address to listen on, or the name of a socket that systemd passes.
type Bind struct {
	Pos     Pos
	Address socket.Address // valid unless Systemd is set
	Systemd string         // the name that FileDescriptorName= gives, see systemd.socket(5)
}

// String returns what is written in a file.
func (b Bind) String() string {
	if b.Systemd != "" {
		return "systemd:" + b.Systemd
	}
	return b.Address.String()
}

// An Address is where something is to be connected to.
type Address = socket.Address

// A Rule says which clients an entry of a list is for, by where they come from.
type Rule = clients.Rule

// A Path is the name of a file, absolute; relative ones in a file are relative to the
// directory of that file. Empty: none.
type Path string

// A Secret is bytes that are written in a file, or for which it names a file or a
// variable of the environment.
type Secret struct {
	// Value is the bytes themselves.
	Value string
	// Source is how they were written, if that was file:PATH or had a ${VARIABLE};
	// it is what is shown instead of the bytes.
	Source string
}

// String returns what may be shown.
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
