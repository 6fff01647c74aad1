// Package authfile checks files with credentials in the format of docker's config.json. Its errors
// have no secrets.
package authfile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"airlift/internal/documents"
	"airlift/internal/documents/textfile"
)

// Check returns the content as one JSON object in UTF-8. The fields with credentials have the right
// types. An empty file is an empty object, as in docker.
func Check(content []byte) ([]byte, error) {
	content = textfile.UTF8(content)
	if len(bytes.TrimSpace(content)) == 0 {
		return []byte("{}"), nil
	}
	top, err := object(content)
	if err != nil {
		return nil, err
	}
	switch {
	case top["data"] != nil && top["kind"] != nil:
		return nil, errors.New(`it is a Secret: extract the file with kubectl get secret NAME -o jsonpath='{.data.\.dockerconfigjson}' | base64 -d`)
	case top["auths"] == nil && slices.ContainsFunc(slices.Collect(maps.Values(top)), isEntry):
		return nil, errors.New(`it has the old format of .dockercfg: put its content into {"auths": …}`)
	}
	if _, err := documents.ReadOne(content); err != nil { // a name that is written twice
		return nil, err
	}
	return content, checkFields(top)
}

func object(content []byte) (top map[string]json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(content))
	err = d.Decode(&top)
	var syntax *json.SyntaxError
	switch {
	case isBase64(content):
		return nil, errors.New("it is encoded in base64, as in a Secret: decode it with base64 -d")
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("line %d: it is not JSON: %w", line(content, syntax.Offset), err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it ends before its JSON does")
	case err != nil || top == nil:
		return nil, errors.New(`it is not a JSON object, {"auths": …}`)
	}
	end := d.InputOffset()
	if rest := bytes.TrimLeft(content[end:], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("line %d: more follows the JSON object", line(content, int64(len(content)-len(rest))+1))
	}
	return top, nil
}

func line(content []byte, offset int64) int {
	return 1 + bytes.Count(content[:max(0, offset-1)], []byte("\n"))
}

func isBase64(content []byte) bool {
	decoded, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(content), nil)))
	return err == nil && bytes.HasPrefix(bytes.TrimSpace(decoded), []byte("{"))
}

func isEntry(value json.RawMessage) bool {
	var entry struct{ Auth, Username, Password any }
	return json.Unmarshal(value, &entry) == nil && (entry.Auth != nil || entry.Username != nil && entry.Password != nil)
}

func checkFields(top map[string]json.RawMessage) error {
	if err := checkType("credsStore", top["credsStore"], new(string), "a string"); err != nil {
		return err
	}
	if err := checkType("credHelpers", top["credHelpers"], new(map[string]string), "an object with strings"); err != nil {
		return err
	}
	var auths map[string]json.RawMessage
	if err := checkType("auths", top["auths"], &auths, "an object with the names of registries"); err != nil {
		return err
	}
	for _, host := range slices.Sorted(maps.Keys(auths)) {
		var entry map[string]json.RawMessage
		if err := checkType(fmt.Sprintf("auths[%q]", host), auths[host], &entry, `an object, {"auth": …}`); err != nil {
			return err
		}
		for _, field := range []string{"auth", "username", "password", "identitytoken", "registrytoken"} {
			if err := checkType(fmt.Sprintf("auths[%q].%s", host, field), entry[field], new(string), "a string in quotes"); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkType(name string, value json.RawMessage, as any, want string) error {
	if value != nil && json.Unmarshal(value, as) != nil {
		return fmt.Errorf("%s must be %s", name, want)
	}
	return nil
}
