package release

import (
	"github.com/distribution/reference"

	"airlift/internal/fault"
)

// Normalize returns the full reference for an image name as a user types it: for "nginx"
// it returns "docker.io/library/nginx:latest". For a name with both a tag and a digest it
// returns only the digest, as container runtimes do.
func Normalize(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fault.New(fault.Usage, "image %q: %w", name, err).
			Hint("write an image as registry.example.com/team/app:v1.2.3")
	}
	return ref.String(), nil
}

// Repository returns a full reference without its tag or digest.
func Repository(full string) string {
	ref, err := reference.ParseNormalizedNamed(full)
	if err != nil {
		return full
	}
	return ref.Name()
}
