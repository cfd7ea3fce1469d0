// Package config reads the configuration of the load balancer. It is YAML or JSON, checked as
// a whole, with every default filled in.
//
// Each key is described once, in the tags of its struct field: key, doc (one sentence),
// default, range, unit, enum, eg (an example), required. Further tags are type (the kind of
// text of a string), single (one value may stand for a list of it) and on (a section that is
// present unless it is off). The loader, the JSON Schema, the reference and the printed
// configuration all follow these tags.
package config
