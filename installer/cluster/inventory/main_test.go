package inventory

import (
	"testing"

	"airlift/scripts/fixtures/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }
