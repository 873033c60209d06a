// Package settings finds the accounts that the command works with: by the environment variables that each provider's
// official SDK reads, and by a small configuration file for more than one account of a provider.
//
// No key ever stands in the file, in an argument or in an error. The file names the environment variables that hold
// the keys:
//
//	{
//	  "fleet": "ci-agents",
//	  "providers": ["blue", "docker"],
//	  "accounts": {
//	    "blue": {"provider": "e2b", "E2B_API_KEY": "BLUE_E2B_KEY"}
//	  }
//	}
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sandglass-dev/sandglass/sandbox"
)

// maxFile is far more than any sensible file has.
const maxFile = 1 << 20

// A File is what the configuration file may say. Flags go before environment variables, these before the file.
type File struct {
	Fleet     string   `json:"fleet"`     // default of --fleet
	Providers []string `json:"providers"` // default of --provider
	Journal   string   `json:"journal"`   // default of --journal
	History   string   `json:"history"`   // default of --history

	// Accounts are further accounts by the names that --provider takes: "provider" says of which provider, each other
	// key is one of that provider's official environment names, and its value the environment variable to read instead.
	Accounts map[string]map[string]string `json:"accounts"`
}

// Settings are a File and the environment.
type Settings struct {
	File
	Path   string // of the file; empty: there is none
	getenv func(string) string
}

// DefaultPath returns where the file is looked for if nobody names one: sandglass/config.json where the user's
// configuration is kept.
func DefaultPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "sandglass", "config.json"), nil
}

// Load reads the file at path, or the one at [DefaultPath] if path is empty, which need not be there. getenv is
// [os.Getenv] or the like.
func Load(path string, getenv func(string) string) (*Settings, error) {
	s := &Settings{getenv: getenv}
	asked := path != ""
	if !asked {
		var err error
		if path, err = DefaultPath(); err != nil { // a process without a home has no file either
			return s, nil
		}
	}
	text, err := read(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return s, nil
	}
	if err == nil {
		err = s.decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("settings: %s: %w", path, err)
	}
	s.Path = path
	return s, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return text, err
}

// variable is what an environment variable's name looks like. Keys of all providers have other characters or small
// letters in them: one that was written into the file by mistake is refused, and is not read out in the error.
var variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,63}$`)

func (s *Settings) decode(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.File); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one JSON value")
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(s.Accounts)) {
		account := s.Accounts[name]
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("account %q: "+format, append([]any{name}, args...)...))
		}
		k, ok := kindOf(account["provider"])
		if !ok {
			fault("its provider is none of %s", strings.Join(Kinds(), ", "))
			continue
		}
		if _, taken := kindOf(name); taken || !isWord(name) {
			fault("an account's name is made of letters, digits, '.', '_' and '-', and is not a provider's own")
		}
		for _, official := range slices.Sorted(maps.Keys(account)) {
			switch {
			case official == "provider":
			case !slices.Contains(k.variables, official):
				fault("%q is none of the names that an account of %s has in the file: %s", official, k.name, strings.Join(k.variables, ", "))
			case !variable.MatchString(account[official]):
				fault("the value of %s is no environment variable's name (the file holds names of variables, never keys)", official)
			}
		}
	}
	return errors.Join(faults...)
}

func isWord(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// Names returns the names of all accounts for which there are settings: those of the file, and the providers whose
// official environment names are set, in this order.
func (s *Settings) Names() []string {
	names := slices.Sorted(maps.Keys(s.Accounts))
	for _, k := range kinds() {
		if slices.ContainsFunc(k.present, func(v string) bool { return s.getenv(v) != "" }) {
			names = append(names, k.name)
		}
	}
	return names
}

// An Account is a provider that the settings name.
type Account struct {
	sandbox.Provider
	Word string // by which it was asked for
	Kind string // of [Kinds]

	// Env is what a program with the official SDK needs beside the environment that it has anyway, as NAME=value.
	// It holds secrets.
	Env []string
}

// Unwrap returns the adapter. For [sandbox.As].
func (a *Account) Unwrap() sandbox.Provider { return a.Provider }

// Open returns the account called name. It makes no request.
func (s *Settings) Open(name string) (*Account, error) {
	if k, ok := kindOf(name); ok {
		p, err := k.fromEnv(s.getenv)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		return &Account{Provider: p, Word: name, Kind: k.name}, nil
	}
	account, ok := s.Accounts[name]
	if !ok {
		return nil, fmt.Errorf("provider %q is none of %s, and no account of the configuration file%s: %w",
			name, strings.Join(Kinds(), ", "), s.listed(), sandbox.ErrInvalid)
	}
	k, _ := kindOf(account["provider"])
	a := &Account{Word: name, Kind: k.name}
	values := map[string]string{}
	for _, official := range slices.Sorted(maps.Keys(account)) {
		if official == "provider" {
			continue
		}
		value := s.getenv(account[official])
		if value == "" {
			return nil, fmt.Errorf("account %s: %s is to come from the environment variable %s, which is not set: %w",
				name, official, account[official], sandbox.ErrInvalid)
		}
		values[official] = value
		a.Env = append(a.Env, official+"="+value)
	}
	for _, official := range k.variables { // what the default account has set is not this one's
		if values[official] == "" && s.getenv(official) != "" {
			a.Env = append(a.Env, official+"=")
		}
	}
	p, err := k.named(k.name+"/"+name, func(v string) string { return values[v] })
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", name, err)
	}
	a.Provider = p
	return a, nil
}

func (s *Settings) listed() string {
	if len(s.Accounts) == 0 {
		return ""
	}
	return " (" + strings.Join(slices.Sorted(maps.Keys(s.Accounts)), ", ") + ")"
}

// OpenAll returns the accounts of the given names, or all faults. No two of them are the same account.
func (s *Settings) OpenAll(names []string) ([]*Account, error) {
	var all []*Account
	var faults []error
	seen := map[string]string{}
	for _, name := range names {
		a, err := s.Open(name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if first, twice := seen[a.Name()]; twice {
			if first != name {
				faults = append(faults, fmt.Errorf("%s and %s are the same account, %s: %w", first, name, a.Name(), sandbox.ErrInvalid))
			}
			continue
		}
		seen[a.Name()] = name
		all = append(all, a)
	}
	return all, errors.Join(faults...)
}

// AccountNames returns the names of the file's accounts.
func (s *Settings) AccountNames() []string { return slices.Sorted(maps.Keys(s.Accounts)) }
