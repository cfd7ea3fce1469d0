package config

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A notPlain is a node that is not edited, and why. It wraps [ErrNotPlain].
type notPlain struct {
	at  *yaml.Node
	why string
}

func (e *notPlain) Error() string { return fmt.Sprintf("%v: %s", ErrNotPlain, e.why) }
func (e *notPlain) Unwrap() error { return ErrNotPlain }

// placed adds the node to an error that has none.
func placed(n *yaml.Node, err error) error {
	if err == nil || errors.As(err, new(*notPlain)) {
		return err
	}
	return &notPlain{n, "its end is not where it is looked for"}
}

// plainNode returns why a node is not written where it counts, or not for itself alone; nil: it is.
func plainNode(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return &notPlain{n, "an alias stands for it: *" + n.Value}
	case n.Anchor != "":
		return &notPlain{n, "others may stand on its anchor: &" + n.Anchor}
	case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${"):
		return &notPlain{n, "it has a variable: " + n.Value}
	}
	for _, child := range n.Content {
		if child.Tag == "!!merge" {
			return &notPlain{child, "it has keys of another mapping: <<"}
		}
		if err := plainNode(child); err != nil {
			return err
		}
	}
	return nil
}

// endpoints returns the list of the endpoints of an upstream, or why it is not edited.
func (ed *editor) endpoints(root *yaml.Node, u *Upstream) (*yaml.Node, error) {
	_, upstreams := pairOf(root, "upstreams")
	switch {
	case upstreams == nil:
		return nil, ErrNotPlain
	case upstreams.Kind != yaml.SequenceNode, upstreams.Anchor != "":
		return nil, noList(upstreams)
	}
	for _, n := range upstreams.Content {
		if n.Line == u.Pos.Line && n.Column == u.Pos.Column {
			return endpointList(n)
		}
	}
	return nil, ErrNotPlain
}

// endpointList returns the list of the endpoints in the node of an upstream.
func endpointList(n *yaml.Node) (*yaml.Node, error) {
	_, list := pairOf(n, "endpoints")
	merged := keyIndex(n, "<<")
	switch {
	case n.Kind != yaml.MappingNode, n.Anchor != "":
		return nil, noList(n)
	case list == nil && merged >= 0:
		return nil, &notPlain{n.Content[merged], "its endpoints are those of another mapping: <<"}
	case list == nil:
		return nil, ErrNotPlain
	case list.Kind != yaml.SequenceNode, list.Anchor != "", len(list.Content) == 0:
		return nil, noList(list)
	}
	return list, nil
}

// noList returns why a node is not edited where a list is looked for.
func noList(n *yaml.Node) error {
	if err := plainNode(n); err != nil {
		return err
	}
	return &notPlain{n, "it is no list of items"}
}
