package compile

import "testing"

func TestConfigured(t *testing.T) {
	const config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_AB=\"x\"\n"
	got, err := configured([]byte(config), map[string]string{"CONFIG_A": "n", "CONFIG_B": "y"})
	if want := "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_AB=\"x\"\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := configured([]byte(config), map[string]string{"CONFIG_C": "y"}); err == nil {
		t.Error("an option that does not exist is no error")
	}
}
