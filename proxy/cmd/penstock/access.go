package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
)

// accessFlags are the address of a process, and the credentials that TCP needs. Each has an environment
// variable of its name.
type accessFlags struct {
	Admin     *string `placeholder:"ADDR" help:"Where to ask instead: unix:/path, or host:port. Also PENSTOCK_ADMIN."`
	TokenFile *string `placeholder:"FILE" help:"The token to show over TCP, in a file of one line. Also PENSTOCK_TOKEN_FILE. (default: the one of the configuration, if it may be read)"`
	CA        *string `name:"ca" placeholder:"FILE" help:"TLS to a server with a certificate of these authorities, PEM, or of those of the system: system. Also PENSTOCK_CA."`
	Cert      *string `placeholder:"FILE" help:"The certificate to show with TLS, PEM. Also PENSTOCK_CERT."`
	Key       *string `placeholder:"FILE" help:"Its private key, PEM. Also PENSTOCK_KEY."`
}

// address is the address of the process, if a flag or the environment has it.
func (f *accessFlags) address(e *cli.Env) string { return given(e, f.Admin, "PENSTOCK_ADMIN") }

// given is the value of a flag, or else of an environment variable.
func given(e *cli.Env, flag *string, variable string) string {
	if flag != nil {
		return *flag
	}
	value, _ := e.Environment()(variable)
	return value
}

// complete adds the credentials of the flags and the environment to those of a configuration.
func (f *accessFlags) complete(e *cli.Env, as *admin.Credentials) error {
	cert, key := given(e, f.Cert, "PENSTOCK_CERT"), given(e, f.Key, "PENSTOCK_KEY")
	switch {
	case (cert == "") != (key == ""):
		return errors.New("a certificate and its key go together: write --cert FILE --key FILE")
	case cert != "":
		as.Cert, as.Key = cert, key
	}
	if as.CA = given(e, f.CA, "PENSTOCK_CA"); as.CA != "" {
		as.Own = ""
	}
	file := given(e, f.TokenFile, "PENSTOCK_TOKEN_FILE")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if as.Token = strings.TrimRight(string(text), "\r\n"); as.Token == "" {
		return fmt.Errorf("--token-file: %s is empty: write a token into it", file)
	}
	return nil
}

// ownCredentials are those that the configuration of a process has, as far as this user may read them.
func ownCredentials(a *config.Admin) *admin.Credentials {
	as := &admin.Credentials{Token: cmp.Or(a.ChangeToken.Value, a.ReadToken.Value)}
	if a.TLS == nil {
		return as
	}
	as.Own = string(a.TLS.Cert)
	if key, err := os.Open(string(a.TLS.Key)); err == nil {
		key.Close()
		as.Cert, as.Key = as.Own, string(a.TLS.Key)
	}
	return as
}
