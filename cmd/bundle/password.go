package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"airlift/internal/documents/textfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// passwordVariable is the environment variable with the password of the secret key.
const passwordVariable = "AIRLIFT_KEY_PASSWORD"

const passwordHelp = `The password of the secret key is read from the terminal. Without a terminal, set
` + passwordVariable + ` or use --password-file; its first line is the password.`

// keyPassword is the value of passwordVariable. It is taken out of the environment when the process
// starts: zstd, ctr and the credential helpers of registries must not inherit it.
var keyPassword, keyPasswordGiven = takeVariable(passwordVariable)

func takeVariable(name string) (value string, ok bool) {
	value, ok = os.LookupEnv(name)
	_ = os.Unsetenv(name)
	return value, ok
}

// A passwordFlag is the source of the password of a secret key.
type passwordFlag struct{ file string }

func (p *passwordFlag) bind(f *pflag.FlagSet) {
	f.StringVar(&p.file, "password-file", "", "`FILE` with the password of the secret key (default: "+passwordVariable+", or the terminal)")
}

// given returns the password in the file or the environment variable.
func (p *passwordFlag) given() (password string, ok bool, err error) {
	if p.file != "" {
		text, err := os.ReadFile(p.file)
		if err != nil {
			return "", false, fault.New(fault.Usage, "reading the password: %w", err).Hint("name a readable file with --password-file")
		}
		line, _, _ := bytes.Cut(textfile.UTF8(text), []byte("\n"))
		return string(bytes.TrimSuffix(line, []byte("\r"))), true, nil
	}
	return keyPassword, keyPasswordGiven, nil
}

// existing returns the password of an existing key.
func (p *passwordFlag) existing(ctx context.Context, path string) (string, error) {
	password, ok, err := p.given()
	if ok || err != nil {
		return password, err
	}
	return prompt(ctx, "Password of "+path+": ")
}

// chosen returns the password for a new key, which must not be empty.
func (p *passwordFlag) chosen(ctx context.Context) (string, error) {
	password, ok, err := p.given()
	if err != nil {
		return "", err
	}
	if !ok {
		if password, err = prompt(ctx, "Password for the new secret key: "); err != nil {
			return "", err
		}
		again, err := prompt(ctx, "The same password again: ")
		if err != nil {
			return "", err
		}
		if password != again {
			return "", fault.New(fault.Usage, "the two passwords differ").Hint("run the command again")
		}
	}
	if password == "" {
		return "", fault.New(fault.Usage, "the password is empty").Hint("choose a password, or use --no-password for a key that is not encrypted")
	}
	return password, nil
}

// prompt reads a password from the terminal.
func prompt(ctx context.Context, question string) (string, error) {
	password, ok, err := interrupt.ReadPassword(ctx, os.Stdin, os.Stderr, question)
	switch {
	case !ok:
		return "", fault.New(fault.Usage, "the secret key has a password, and standard input is not a terminal").Hint("set " + passwordVariable + " or use --password-file")
	case err != nil:
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return password, nil
}
