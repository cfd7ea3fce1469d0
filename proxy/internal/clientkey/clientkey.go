// Package clientkey names the properties of a client that a consistent policy hashes, and that label metrics.
package clientkey

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Kind is a property of a client.
type Kind uint8

const (
	// Source is its address; the zero value.
	Source Kind = iota
	// SNI is the server name of its ClientHello, in lower case.
	SNI
	// User is the user in its startup message of PostgreSQL.
	User
	// Database is the database in the same message.
	Database
	// TLV is the value of a TLV of its PROXY header.
	TLV
)

// words are the kinds in a configuration, except for TLV.
var words = []string{Source: "source", SNI: "sni", User: "user", Database: "database"}

const tlvPrefix = "tlv:"

// A Key is a property of a client. It is comparable; the zero value is its source.
type Key struct {
	Kind Kind
	// Type is the type of the TLV, for the kind TLV.
	Type byte
}

// ErrKey is wrapped by the error of a key that does not exist.
var ErrKey = errors.New("no such key")

// Parse reads a key as String writes it. The type of a TLV may be decimal as well.
func Parse(text string) (Key, error) {
	if kind := slices.Index(words, text); kind >= 0 {
		return Key{Kind: Kind(kind)}, nil
	}
	if number, ok := strings.CutPrefix(text, tlvPrefix); ok {
		n, err := strconv.ParseUint(number, 0, 8)
		if err != nil {
			return Key{}, fmt.Errorf("%w: %q: the type of a TLV is a number from 0x00 to 0xff", ErrKey, text)
		}
		return Key{TLV, byte(n)}, nil
	}
	return Key{}, fmt.Errorf("%w: %q", ErrKey, text)
}

// Words are the keys, with an example of a TLV.
func Words() []string { return append(slices.Clone(words), tlvPrefix+"0xe0") }

// String returns the key as a configuration has it.
func (k Key) String() string {
	if k.Kind == TLV {
		return fmt.Sprintf("%s0x%02x", tlvPrefix, k.Type)
	}
	return words[k.Kind]
}
