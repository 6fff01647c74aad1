package backup

import (
	"bytes"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"airlift/internal/fault"
)

// Recipients reads age recipients from arguments and files. A file has one on each line, and is read once: it
// may be a pipe. lines are all of them as the text of one file, "" for none.
func Recipients(arguments, files []string) (list []age.Recipient, lines string, err error) {
	for _, text := range arguments {
		found, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil || len(found) != 1 {
			_, hint := notAge(text, "FILE")
			return nil, "", fault.New(fault.Usage, "--recipient is not one recipient of age, age1…").Hint(hint)
		}
		list, lines = append(list, found...), lines+text+"\n"
	}
	for _, name := range files {
		found, content, err := fromFile(name, "--recipients-file", age.ParseRecipients)
		if err != nil {
			return nil, "", err
		}
		list, lines = append(list, found...), lines+content+"\n"
	}
	return list, lines, nil
}

// Identities reads the identities in files as age-keygen writes them.
func Identities(files []string) (list []age.Identity, err error) {
	for _, name := range files {
		found, _, err := fromFile(name, "--identity", age.ParseIdentities)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func fromFile[T any](name, flag string, parse func(r io.Reader) ([]T, error)) (list []T, text string, err error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, "", fault.New(fault.Usage, "%s: %w", flag, err).Hint("give the path of a file that age-keygen wrote")
	}
	list, err = parse(bytes.NewReader(content))
	if err != nil {
		why, hint := notAge(string(content), name)
		return nil, "", fault.New(fault.Usage, "%s %s: it is not a file of these age keys: %s%w", flag, name, why, err).Hint(hint)
	}
	return list, string(content), nil
}

// notAge explains a file that was given instead of one with recipients or identities.
func notAge(content, name string) (why, hint string) {
	switch {
	case strings.HasPrefix(content, "\xff\xfe"):
		return "it is in UTF-16: ", "convert it: iconv -f UTF-16 -t UTF-8 " + name + " > " + name + ".txt"
	case strings.Contains(content, "AGE-SECRET-KEY-"):
		return "it has a secret key: ", "--recipient and --recipients-file need public keys: age-keygen -y " + name + " prints them"
	case strings.HasPrefix(content, "age-encryption.org/"), strings.Contains(content, "BEGIN AGE ENCRYPTED FILE"):
		return "it is encrypted: ", "decrypt it: age --decrypt --output " + name + ".txt " + name
	case strings.Contains(content, "ssh-"), strings.Contains(content, "BEGIN OPENSSH"), strings.Contains(content, "-----BEGIN "):
		return "it is a key of SSH, TLS or other software: ", "only keys of age are used; create a pair: age-keygen -o key.txt"
	case strings.Contains(content, "age1"):
		return "", "--identity needs the file with the secret key, AGE-SECRET-KEY-1…, that age-keygen -o wrote; each recipient is in a line of its own"
	}
	return "", "create a pair: age-keygen -o key.txt (it prints the public key, age1…)"
}
