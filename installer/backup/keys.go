package backup

import (
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"airlift/fault"
)

// Recipients reads age recipients from arguments and files. A file has one on each line.
func Recipients(arguments, files []string) (list []age.Recipient, err error) {
	for _, text := range arguments {
		found, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil || len(found) != 1 {
			return nil, fault.New(fault.Usage, "give a public key as age-keygen prints it: age1…", "--recipient %q is not an age recipient", text)
		}
		list = append(list, found...)
	}
	for _, name := range files {
		found, err := fromFile(name, "--recipients-file", age.ParseRecipients)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// Identities reads the identities in files as age-keygen writes them.
func Identities(files []string) (list []age.Identity, err error) {
	for _, name := range files {
		found, err := fromFile(name, "--identity", age.ParseIdentities)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func fromFile[T any](name, flag string, parse func(r io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.New(fault.Usage, "", "%s: %w", flag, err)
	}
	defer f.Close()
	list, err := parse(f)
	if err != nil {
		return nil, fault.New(fault.Usage, "", "%s %s: %w", flag, name, fmt.Errorf("it is not a file of age keys: %w", err))
	}
	return list, nil
}

// RecipientLines returns the recipients of Recipients as the text of one file, "" for none.
func RecipientLines(arguments, files []string) (string, error) {
	var text strings.Builder
	for _, a := range arguments {
		fmt.Fprintln(&text, a)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", fault.New(fault.Usage, "", "--recipients-file: %w", err)
		}
		fmt.Fprintln(&text, string(data))
	}
	return text.String(), nil
}
