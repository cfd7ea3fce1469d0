package config

import (
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/proxy/internal/file"
	"go.yaml.in/yaml/v4"
)

// resolved is the schema, ready to be used.
var resolved = sync.OnceValues(func() (*jsonschema.Resolved, error) { return Schema().Resolve(nil) })

// Validate checks one file, without its included files, against [Schema]. [Load] finds more
// errors, with their positions.
func Validate(path string) []Problem {
	whole := place{src: &source{name: path}}
	data, err := file.Read(path, maxFile)
	if err != nil {
		return []Problem{whole.problem(mend(err, maxFile), "cannot be read: %v", pathless(err))}
	}
	if _, problem := newSource(path, data).parse(); problem != nil {
		return []Problem{*problem}
	}
	if err := validate(data); err != nil {
		return []Problem{whole.problem("", "%s", printable(err.Error()))}
	}
	return nil
}

func validate(data []byte) error {
	var instance any
	if err := yaml.Load(data, &instance); err != nil {
		return err
	}
	schema, err := resolved()
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}
