// Package config reads the configuration of the load balancer: YAML or JSON, checked
// as a whole, with every default filled in.
//
// What there is to write is said once, in the tags of the structs' fields: key, doc
// (one sentence), default, range, unit, enum, type (what kind of text a string is), eg
// (an example), required, single (one value may stand for a list of it), on (a section
// that is there unless it is off). The loader, the JSON Schema, the reference and what
// writes a configuration out all follow these tags.
package config
