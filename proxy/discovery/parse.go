package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A Problem is an error in a file of endpoints. Its text is FILE:LINE:COL: and a valid
// alternative.
type Problem struct {
	File         string
	Line, Column int // from 1
	Message      string
}

// Error implements error.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// maxProblems is the largest number of problems reported for one file.
const maxProblems = 20

// MaxEndpoints is the largest number of endpoints of a source.
const MaxEndpoints = 10_000

// Parse reads a YAML or JSON list of at most [MaxEndpoints] endpoints. name is the name of the
// file in errors. An error joins a [Problem] for each error of the list. An endpoint is at
// most 4 KiB of text, and has no aliases. This bounds the memory that Parse takes.
func Parse(name string, data []byte) ([]Endpoint, error) {
	return parse(name, data, maxPiece)
}

// parse is Parse with pieces of at most the given number of bytes.
func parse(name string, data []byte, limit int) ([]Endpoint, error) {
	p := &parser{file: name, seen: map[string]int{}, most: limit}
	if len(bytes.TrimSpace(data)) == 0 {
		p.problem(1, 1, "the file is empty: write [] for no endpoints")
	} else {
		p.split(data, p.piece)
	}
	if p.problems != nil {
		return nil, errors.Join(p.problems...)
	}
	return p.endpoints, nil
}

type parser struct {
	file      string
	endpoints []Endpoint
	seen      map[string]int // line by identity
	problems  []error
	most      int   // bytes of a piece
	at        piece // piece being read
}

const (
	saysNothing   = "the file says nothing: write [] for no endpoints"
	wantsOne      = "write one document: one list, and no more after it"
	wantsEndpoint = `write an endpoint as "host:port", or as {address: "host:port", weight: 2}`
	wantsList     = `write a list of endpoints, such as ["10.0.0.11:5432", {address: "10.0.0.12:5432", weight: 2}]`
)

// piece reads a piece of the file.
func (p *parser) piece(at piece) {
	at.joinPairs()
	p.at = at
	if root := p.root(at.text); root != nil {
		p.list(root)
	}
}

func (p *parser) problem(line, column int, format string, args ...any) {
	switch {
	case len(p.problems) < maxProblems:
		p.problems = append(p.problems, &Problem{p.file, max(line, 1), max(column, 1), fmt.Sprintf(format, args...)})
	case len(p.problems) == maxProblems:
		p.problems = append(p.problems, &Problem{p.file, max(line, 1), max(column, 1), "and more"})
	}
}

// wrong adds a problem with a position in the current piece.
func (p *parser) wrong(line, column int, format string, args ...any) {
	column += p.at.joined(line, column)
	if line <= 1 {
		column += p.at.col
	}
	p.problem(max(line, 1)+p.at.line-1, column, format, args...)
}

func (p *parser) wrongNode(n *yaml.Node, format string, args ...any) {
	p.wrong(n.Line, n.Column, format, args...)
}

// tooMany adds the problem of a file with more endpoints than allowed.
func (p *parser) tooMany(line int) {
	p.problem(line, 1, "there are more than %d endpoints: write fewer", MaxEndpoints)
}

// shallow limits the nesting of a piece to that of endpoints. Deeper nesting takes the most
// memory.
func (at piece) shallow() yaml.Option {
	return yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthFunc(func(depth int, in *loaderlimits.DepthContext) error {
		if depth > 2 || in.Kind == yaml.DepthKindFlow && depth > at.brackets {
			return errors.New(wantsEndpoint)
		}
		return nil
	})))
}

// root parses the text of a piece.
func (p *parser) root(data []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(data), p.at.shallow())
	var doc, more yaml.Node
	if err == nil {
		err = loader.Load(&doc)
	}
	if err == nil && loader.Load(&more) != io.EOF {
		p.wrong(more.Line, more.Column, "%s", wantsOne)
		return nil
	}
	var load *yaml.LoadError
	switch {
	case err == io.EOF || err == nil && len(doc.Content) != 1:
		p.wrong(1, 1, "%s", saysNothing)
	case errors.As(err, &load):
		p.wrong(load.Mark.Line, load.Mark.Column, "%s", load.Message)
	case err != nil:
		p.wrong(1, 1, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	default:
		return doc.Content[0]
	}
	return nil
}

func (p *parser) list(root *yaml.Node) {
	if root.Kind != yaml.SequenceNode {
		p.wrongNode(root, "%s", wantsList)
		return
	}
	for _, n := range root.Content {
		e, ok := p.endpoint(n)
		if !ok {
			continue
		}
		if len(p.endpoints) == MaxEndpoints {
			p.tooMany(n.Line + p.at.line - 1)
			return
		}
		if line, twice := p.seen[e.Identity()]; twice {
			p.wrongNode(n, "endpoint %q is in line %d already: remove one, or give it another name", e.Identity(), line)
			continue
		}
		p.seen[e.Identity()] = n.Line + p.at.line - 1
		p.endpoints = append(p.endpoints, e)
	}
}

func (p *parser) endpoint(n *yaml.Node) (e Endpoint, ok bool) {
	e.Weight = 1
	before := len(p.problems)
	switch n.Kind {
	case yaml.ScalarNode:
		p.address(n, &e.Address)
	case yaml.MappingNode:
		p.fields(n, &e)
		if e.Address == "" && len(p.problems) == before {
			p.wrongNode(n, "write the endpoint's address: {address: \"host:port\"}")
		}
	default:
		p.wrongNode(n, "%s", wantsEndpoint)
	}
	return e, len(p.problems) == before
}

func (p *parser) fields(n *yaml.Node, e *Endpoint) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			p.wrongNode(key, "key %q is written twice: remove one", key.Value)
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case "address":
			p.address(value, &e.Address)
		case "name":
			p.label(value, &e.Name)
		case "zone":
			p.label(value, &e.Zone)
		case "weight":
			p.number(value, MaxWeight, &e.Weight)
		case "connections":
			p.number(value, 1<<30, &e.Connections)
		case "backup":
			p.truth(value, &e.Backup)
		default:
			p.wrongNode(key, "unknown key %q: write address, name, weight, backup, zone or connections", key.Value)
		}
	}
}

func (p *parser) address(n *yaml.Node, into *string) {
	var text string
	if !p.text(n, &text) {
		return
	}
	a, err := sockopt.Parse(text)
	host, _, _ := strings.Cut(a.Name, ":")
	switch {
	case err != nil:
		p.wrongNode(n, "%v", err)
	case a.Network == "unix" && a.Mode != 0:
		p.wrongNode(n, "address %q: an endpoint has no mode: write unix:%s", text, a.Name)
	case a.Network == "tcp" && (host == "" || strings.HasSuffix(a.Name, ":0")):
		p.wrongNode(n, "address %q: write a host and a port, such as 10.0.0.11:5432", text)
	case a.Connectable() != nil:
		p.wrongNode(n, "%v", a.Connectable())
	case noHost(a) != "":
		p.wrongNode(n, "address %q: %s: write that of one server", text, noHost(a))
	default:
		*into = a.String()
	}
}

// noHost returns why an address cannot be that of a host, or "" if it can.
func noHost(a sockopt.Address) string {
	if a.Network == "unix" {
		return ""
	}
	addr, err := netip.ParseAddrPort(a.Name)
	if err != nil { // a name
		return ""
	}
	return sockopt.NoHost(addr.Addr())
}

func (p *parser) text(n *yaml.Node, into *string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		p.wrongNode(n, "write text in quotes")
		return false
	}
	*into = n.Value
	return true
}

// label reads a name or a zone.
func (p *parser) label(n *yaml.Node, into *string) {
	var text string
	if !p.text(n, &text) {
		return
	}
	if err := display.Check(text, display.MaxName); err != nil {
		p.wrongNode(n, "%v", err)
		return
	}
	*into = text
}

func (p *parser) number(n *yaml.Node, limit int, into *int) {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 0 || v > limit {
		p.wrongNode(n, "write a whole number from 0 to %d", limit)
		return
	}
	*into = v
}

func (p *parser) truth(n *yaml.Node, into *bool) {
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || n.ShortTag() != "!!bool" {
		p.wrongNode(n, "write true or false")
		return
	}
	*into = v
}
