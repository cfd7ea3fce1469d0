package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// unset takes a key out of an endpoint. One in brackets of which its address alone is left becomes that.
func (ed *editor) unset(item *yaml.Node, key string) (string, error) {
	at := keyIndex(item, key)
	if at < 0 {
		return ed.data, nil
	}
	if item.Style&yaml.FlowStyle == 0 && !ed.json {
		return ed.unsetLine(item, at)
	}
	if _, address := pairOf(item, "address"); address != nil && len(item.Content) == 4 {
		from, to, err := ed.extent(item)
		if err != nil {
			return "", err
		}
		first, last, err := ed.extent(address)
		return ed.replace(from, to, ed.data[first:last]), err
	}
	if at+2 < len(item.Content) {
		return ed.replace(ed.start(item.Content[at]), ed.start(item.Content[at+2]), ""), nil
	}
	if at == 0 {
		return "", ErrNotPlain
	}
	_, from, err := ed.extent(item.Content[at-1])
	if err != nil {
		return "", err
	}
	_, to, err := ed.extent(item.Content[at+1])
	return ed.replace(from, to, ""), err
}

// unsetLine takes a key out of an endpoint that has a line for each.
func (ed *editor) unsetLine(item *yaml.Node, at int) (string, error) {
	from := ed.start(item.Content[at])
	if at == 0 { // behind the dash
		if len(item.Content) < 4 {
			return "", ErrNotPlain
		}
		return ed.replace(from, ed.start(item.Content[2]), ""), nil
	}
	_, to, err := ed.extent(item.Content[at+1])
	if err != nil {
		return "", err
	}
	from = strings.LastIndexByte(ed.data[:from], '\n') + 1
	return ed.replace(from, min(ed.lineEnd(to)+1, len(ed.data)), ""), nil
}

// keyIndex returns the place of a key among the nodes of a mapping; negative: it has none.
func keyIndex(n *yaml.Node, key string) int {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}
