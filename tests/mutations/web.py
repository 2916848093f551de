"""A script that has to notice faults in who is let in to the web page."""

from pathlib import Path

from deskgrid.web.access import TokenError, read_token
from tests.web import test_access as access


def access_to_the_page(seed: int, home: Path) -> None:
    """Only the token, and a cookie that was made with it and has not ended, let anybody in, by a known name."""
    access.test_a_cookie_lets_in_until_it_ends()
    access.test_a_cookie_cannot_be_made_or_lengthened_without_the_token()
    access.test_a_new_token_ends_all_cookies()
    access.test_the_cookie_of_another_port_does_not_count()
    access.test_only_the_whole_token_is_the_token()
    access.test_other_names_are_not("evil.example")
    home.mkdir(exist_ok=True)
    token = home / "web.token"
    token.write_text("t" * 43)
    token.chmod(0o644)
    try:
        read_token(token)
    except TokenError:
        return
    raise AssertionError("others can read the token")
