package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/proxy/socket"
)

// A Problem is one thing that is wrong with a file of endpoints. Its text is
// FILE:LINE:COL: and what to write instead.
type Problem struct {
	File         string
	Line, Column int // from 1
	Message      string
}

// Error implements error.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// maxProblems is how many are told of one file.
const maxProblems = 20

// Parse reads a YAML or JSON list of endpoints; name is that of the file in
// errors, which join a [Problem] for each thing that is wrong.
func Parse(name string, data []byte) ([]Endpoint, error) {
	p := &parser{file: name, seen: map[string]int{}}
	root := p.root(data)
	if root != nil {
		p.list(root)
	}
	if p.problems != nil {
		return nil, errors.Join(p.problems...)
	}
	return p.endpoints, nil
}

type parser struct {
	file      string
	endpoints []Endpoint
	seen      map[string]int // identity: line
	problems  []error
}

func (p *parser) problem(line, column int, format string, args ...any) {
	switch {
	case len(p.problems) < maxProblems:
		p.problems = append(p.problems, &Problem{p.file, max(line, 1), max(column, 1), fmt.Sprintf(format, args...)})
	case len(p.problems) == maxProblems:
		p.problems = append(p.problems, &Problem{p.file, max(line, 1), max(column, 1), "and more"})
	}
}

func (p *parser) at(n *yaml.Node, format string, args ...any) {
	p.problem(n.Line, n.Column, format, args...)
}

// root parses the text.
func (p *parser) root(data []byte) *yaml.Node {
	if len(bytes.TrimSpace(data)) == 0 {
		p.problem(1, 1, "the file is empty: write [] for no endpoints")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	var doc, more yaml.Node
	if err == nil {
		err = loader.Load(&doc)
	}
	if err == nil && loader.Load(&more) != io.EOF {
		p.problem(max(more.Line, 1), max(more.Column, 1), "write one document: one list, and no more after it")
		return nil
	}
	var load *yaml.LoadError
	switch {
	case err == io.EOF || err == nil && len(doc.Content) != 1:
		p.problem(1, 1, "the file says nothing: write [] for no endpoints")
	case errors.As(err, &load):
		p.problem(load.Mark.Line, load.Mark.Column, "%s", load.Message)
	case err != nil:
		p.problem(1, 1, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	default:
		return doc.Content[0]
	}
	return nil
}

func (p *parser) list(root *yaml.Node) {
	if root.Kind != yaml.SequenceNode {
		p.at(root, `write a list of endpoints, such as ["10.0.0.11:5432", {address: "10.0.0.12:5432", weight: 2}]`)
		return
	}
	for _, n := range root.Content {
		e, ok := p.endpoint(n)
		if !ok {
			continue
		}
		if line, twice := p.seen[e.Identity()]; twice {
			p.at(n, "endpoint %q is in line %d already: remove one, or give it another name", e.Identity(), line)
			continue
		}
		p.seen[e.Identity()] = n.Line
		p.endpoints = append(p.endpoints, e)
	}
}

func (p *parser) endpoint(n *yaml.Node) (e Endpoint, ok bool) {
	e.Weight = 1
	before := len(p.problems)
	switch n = target(n); n.Kind {
	case yaml.ScalarNode:
		p.address(n, &e.Address)
	case yaml.MappingNode:
		p.fields(n, &e)
		if e.Address == "" && len(p.problems) == before {
			p.at(n, "write the endpoint's address: {address: \"host:port\"}")
		}
	default:
		p.at(n, `write an endpoint as "host:port", or as {address: "host:port", weight: 2}`)
	}
	return e, len(p.problems) == before
}

// target is what an alias stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func (p *parser) fields(n *yaml.Node, e *Endpoint) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		if seen[key.Value] {
			p.at(key, "key %q is written twice: remove one", key.Value)
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case "address":
			p.address(value, &e.Address)
		case "name":
			p.text(value, &e.Name)
		case "zone":
			p.text(value, &e.Zone)
		case "weight":
			p.number(value, MaxWeight, &e.Weight)
		case "connections":
			p.number(value, 1<<30, &e.Connections)
		case "backup":
			p.truth(value, &e.Backup)
		default:
			p.at(key, "unknown key %q: write address, name, weight, backup, zone or connections", key.Value)
		}
	}
}

func (p *parser) address(n *yaml.Node, into *string) {
	var text string
	if !p.text(n, &text) {
		return
	}
	a, err := socket.Parse(text)
	host, _, _ := strings.Cut(a.Name, ":")
	switch {
	case err != nil:
		p.at(n, "%v", err)
	case a.Network == "unix" && a.Mode != 0:
		p.at(n, "address %q: an endpoint has no mode: write unix:%s", text, a.Name)
	case a.Network == "tcp" && (host == "" || strings.HasSuffix(a.Name, ":0")):
		p.at(n, "address %q: write a host and a port, such as 10.0.0.11:5432", text)
	default:
		*into = a.String()
	}
}

func (p *parser) text(n *yaml.Node, into *string) bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		p.at(n, "write text in quotes")
		return false
	}
	*into = n.Value
	return true
}

func (p *parser) number(n *yaml.Node, most int, into *int) {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 0 || v > most {
		p.at(n, "write a whole number from 0 to %d", most)
		return
	}
	*into = v
}

func (p *parser) truth(n *yaml.Node, into *bool) {
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || n.ShortTag() != "!!bool" {
		p.at(n, "write true or false")
		return
	}
	*into = v
}
