"""The page at /, driven in a real browser."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pyarrow as pa
import pytest

from browsing import Visit, expect, needed, serving
from coldhash import MFDCF, FeaturePlan, Ids, read
from coldhash.registry import MODELS

playwright_api = needed("playwright.sync_api")
# not by its own classes: they read the script in the encoding of the locale
AXE = Path(needed("axe_playwright_python").__file__).with_name("axe.min.js")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.slow  # a browser
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium is installed, so the page is not tested")
        pytest.skip("no Chromium is installed")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def sample():
    return read("sample", n_users=1000, n_items=200)


@pytest.fixture(scope="module")
def model_file(sample, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "sample.coldhash"
    MFDCF(n_bits=64).fit(sample).save(path)
    return path


@pytest.fixture(scope="module")
def url(model_file):
    with serving(model_file) as (url, _):
        yield url


@pytest.fixture
def visit(browser):
    """Open the page of a server; at the end, nothing may have left it or been complained of."""
    visits, contexts = [], []

    def start(url, **options):
        contexts.append(browser.new_context(**options))
        visits.append(Visit(contexts[-1].new_page(), url))
        return visits[-1]

    yield start
    for each in visits:
        origins = {urlsplit(url)[:2] for url in each.requests if url != "about:blank"}
        assert origins == {urlsplit(each.url)[:2]}
        assert each.complaints == []
    for context in contexts:
        context.close()


def test_answers_change_list_and_bits_and_live_in_the_address(url, visit):
    one = visit(url).open()
    page = one.page
    expect(page.locator("#difference")).to_contain_text("both lists are the same")
    assert one.texts("#mine .title") == one.texts("#popular .title")
    popular, unknown = one.texts("#mine .title"), one.bits()
    assert len(unknown) == 56
    assert page.locator("#bits .changed").count() == 0

    one.do(lambda: page.get_by_label("Age").fill("70"))
    answer = one.do(lambda: page.get_by_label("Occupation").select_option("retired"))
    assert answer["fallback"] is False
    assert one.texts("#mine .title") != popular
    assert one.texts("#popular .title") == popular
    before = one.bits()
    assert before != unknown

    search = page.get_by_role("combobox", name="Something you know")
    search.press_sequentially("am")
    expect(page.locator("#found [role=option]").first).to_be_visible()
    search.press("ArrowDown")
    search.press("ArrowDown")
    chosen = page.locator("#found [aria-selected=true]")
    expect(chosen).to_have_id(search.get_attribute("aria-activedescendant"))
    title = chosen.locator(".title").inner_text()
    one.do(lambda: search.press("Enter"))
    rating = page.get_by_role("slider", name=f"Your rating of {title}")
    expect(rating).to_have_value("5")
    assert one.bits() != before
    one.do(lambda: rating.press("Home"))

    shown = one.texts("#mine .title"), one.bits(), one.texts("#rated .title")
    address = page.url
    page.reload()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(page.locator("#rated .title")).to_have_text(title)
    expect(page.get_by_label("Age")).to_have_value("70")
    expect(page.get_by_label("Occupation")).to_have_value("retired")
    expect(rating).to_have_value("1")
    assert (one.texts("#mine .title"), one.bits(), one.texts("#rated .title")) == shown
    assert page.url == address

    one.do(lambda: page.get_by_role("button", name=f"Remove {title}").click())
    one.do(lambda: page.get_by_role("button", name="Start over").click())
    assert one.texts("#mine .title") == popular
    assert one.bits() == unknown


def test_changed_bits_are_marked_and_said(url, visit):
    one = visit(url).open("#age=20&gender=male")
    before = one.bits()
    one.do(lambda: one.page.get_by_label("Age").fill("70"))
    marks = one.page.locator("#bits > span").evaluate_all(
        "bits => bits.map(bit => bit.classList.contains('changed'))"
    )
    differs = [old != new for old, new in zip(before, one.bits(), strict=True)]
    assert any(differs)
    assert marks == differs
    said = f"56 bits, {sum(differs)} changed"
    expect(one.page.get_by_role("img", name=said, exact=True)).to_be_visible()
    expect(one.page.locator("#news")).to_contain_text(said)
    expect(one.page.locator("#timing")).to_contain_text("The server took")
    expect(one.page.locator("#bars .value")).to_have_text("100 %")


def test_each_item_says_why(url, visit):
    one = visit(url).open("#age=20&history.5=5")
    row = one.page.locator("#mine > li").nth(1)
    with one.page.expect_response("**/v1/explain") as asked:
        row.locator("summary").press("Enter")
    why = row.locator(".why")
    expect(why).to_contain_text(asked.value.json()["why"])
    expect(why).to_contain_text("By popularity alone it would be")
    assert why.locator(".bars li").count() == len(asked.value.json()["contributions"])
    expect(why.locator(".bars .label").get_by_text("Popularity", exact=True)).to_be_visible()


def test_a_slider_goes_from_popular_to_personal(url, visit):
    one = visit(url).open("#age=70&occupation=retired")
    page, slider = one.page, one.page.get_by_role("slider", name="Popular or personal")
    expect(slider).to_have_value("0")
    expect(slider).to_have_attribute("aria-valuetext", "popularity counts 100 %")
    popular = one.texts("#mine .title")
    summary = page.locator("#mine > li").first.locator("summary")
    summary.press("Enter")
    part = page.locator(".why .bars li", has_text="Popularity")
    expect(part).to_be_visible()

    answer = one.do(lambda: slider.press("End"))
    expect(slider).to_be_focused()
    expect(slider).to_have_attribute("aria-valuetext", "popularity counts 0 %")
    assert page.url.endswith("&request.popularity=0")
    person = {"age": 70, "occupation": "retired"}
    asked = {"user": person, "k": 10, "popularity": 0}
    assert answer == httpx.post(f"{url}/v1/recommend", json=asked).json()
    assert one.texts("#mine .title") != popular

    one.do(lambda: slider.press("ArrowLeft"))
    assert page.url.endswith("&request.popularity=0.05")
    shown = one.texts("#mine .title")
    page.reload()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(slider).to_have_value("0.95")
    assert one.texts("#mine .title") == shown

    with page.expect_response("**/v1/explain") as explained:
        page.locator("#mine > li").first.locator("summary").press("Enter")
    assert explained.value.request.post_data_json["popularity"] == 0.05
    one.do(lambda: page.get_by_role("button", name="Start over").click())
    expect(slider).to_have_value("0")
    assert "popularity" not in page.url


def test_moves_against_popularity_are_those_of_the_two_lists(url, visit):
    one = visit(url).open()
    answer = one.do(lambda: one.page.get_by_label("Occupation").select_option("retired"))
    everyone = httpx.post(f"{url}/v1/recommend", json={"user": {}, "k": 10}).json()
    popular = [item["item_id"] for item in everyone["items"]]
    mine = [item["item_id"] for item in answer["items"]]
    for item_id, mark in zip(mine, one.texts("#mine .badge > [aria-hidden]"), strict=True):
        up = popular.index(item_id) - mine.index(item_id) if item_id in popular else None
        arrow = "▲" if up and up > 0 else "▼"
        assert mark == ("new" if up is None else "=" if up == 0 else f"{arrow} {abs(up)}")
    left_out = [at for at, item_id in enumerate(popular) if item_id not in mine]
    marks = one.texts("#popular .badge > [aria-hidden]")
    assert [at for at, mark in enumerate(marks) if mark == "left out"] == left_out
    assert left_out


def test_an_address_from_anybody_harms_nothing(url, visit):
    one = visit(url)
    image = "<img src=x onerror=alert(1)>"
    one.page.on("dialog", lambda dialog: one.complaints.append(dialog.message))
    one.open(
        f"#age=abc&gender=%3Cb%3E&nothing=1&history.5=99&history.=3&history.7=%00&%&==&__proto__=1"
        f"&history.{quote(image)}=4&history.__proto__=3&history.constructor=2&occupation=student"
        f"&request.popularity=2&request.popularity=x&request.popularity="
    )
    page = one.page
    expect(page.get_by_label("Occupation")).to_have_value("student")
    expect(page.get_by_label("Age")).to_have_value("")
    expect(page.get_by_label("Gender")).to_have_value("")
    assert one.texts("#rated .title") == [image, "__proto__", "constructor"]
    expect(page.locator("#rated .wrong")).to_have_text(["unknown to this model"] * 3)
    assert page.locator("main img").count() == 0
    assert "nothing" not in page.url
    assert "popularity" not in page.url

    page.evaluate("location.hash = '#age=44'")  # somebody pastes another link
    expect(page.get_by_label("Age")).to_have_value("44")
    expect(page.locator("#rated li")).to_have_count(0)


def test_a_server_that_is_gone_is_said_and_can_come_back(visit, model_file):
    with serving(model_file) as (url, process):
        one = visit(url).open()
        one.may_fail = True
        before = one.texts("#mine .title")
        process.terminate()
        process.wait()
        one.page.get_by_label("Age").fill("23")
        alert = one.page.get_by_role("alert")
        expect(alert).to_contain_text("The server does not answer")
        assert one.texts("#mine .title") == before
        assert "age=23" in one.page.url

    with serving(model_file, urlsplit(url).port):
        one.do(lambda: one.page.get_by_role("button", name="Try again").click())
        expect(alert).to_be_hidden()
        assert one.texts("#mine .title") != before


def test_what_the_server_refuses_is_said_beside_its_field(url, visit):
    one = visit(url).open()
    one.may_fail = True
    age = one.page.get_by_label("Age")
    age.fill("1e300")
    wrong = one.page.locator("#wrong-age")
    expect(wrong).to_have_text("not a number (a number, or null where it is unknown)")
    expect(age).to_have_attribute("aria-invalid", "true")
    one.do(lambda: age.fill("30"))
    expect(wrong).to_be_hidden()
    expect(age).not_to_have_attribute("aria-invalid", "true")


def test_a_server_that_wants_a_token_gets_it(live, visit, model_file):
    one = visit(live(model_file, COLDHASH_TOKEN="let me in").url)
    one.may_fail = True
    page = one.page
    page.goto(f"{one.url}/#age=23")
    expect(page.get_by_role("alert")).to_contain_text("This server needs a token")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("alert")).to_contain_text("the token is wrong")
    page.get_by_label("Token").fill("let me in")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_label("Age")).to_have_value("23")
    assert "let" not in page.url


def test_models_without_codes_or_titles_have_a_page(live, visit, sample, tmp_path):
    path = tmp_path / "popularity.coldhash"
    model = MODELS["popularity"]().fit(sample)
    replace(model, item_table=None).save(path)
    one = visit(live(path).url).open()
    expect(one.page.locator("#code")).to_be_hidden()
    expect(one.page.locator("#dial")).to_be_hidden()
    expect(one.page.locator("#lead-plain")).to_be_visible()
    expect(one.page.locator("#lead-codes")).to_be_hidden()
    assert set(one.texts("#mine .title")) < set(map(str, sample.ratings.items))


def test_axe_finds_nothing_serious(url, visit):
    for scheme in ("light", "dark"):
        for size in (PHONE, DESKTOP):
            one = visit(url, color_scheme=scheme, viewport=size, reduced_motion="reduce")
            page = one.open("#age=23&gender=male&history.5=4&history.unknown=2").page
            page.locator("#mine summary").first.click()
            expect(page.locator(".why .bars")).to_be_visible()
            page.get_by_role("combobox", name="Something").press_sequentially("a")
            expect(page.locator("#found [role=option]").first).to_be_visible()
            page.evaluate(AXE.read_text(encoding="utf-8"))
            found = page.evaluate("axe.run()")["violations"]
            serious = [each for each in found if each["impact"] in ("serious", "critical")]
            assert serious == [], (scheme, size)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")  # the answers mean nothing
def test_every_kind_of_field_has_its_control(visit, sample, tmp_path):
    plan = FeaturePlan.model_validate(
        {
            "users": {
                "person": {"age": "number", "city": "category"},
                "taste": {"likes": "multi-label", "about_me": "text", "embedding": "vector"},
            }
        }
    )
    n_users = len(sample.ratings.users)
    users = sample.users.append_column(
        "likes", [["tea|cats", "cats", "<b>", "tea|<b>"] * (n_users // 4)]
    )
    users = users.append_column("about_me", [["likes long walks", "reads a lot"] * (n_users // 2)])
    users = users.append_column("embedding", [[[0.5, 1.0], [1.0, 0.5]] * (n_users // 2)])
    path = tmp_path / "rich.coldhash"
    MFDCF(n_bits=16).fit(replace(sample, users=users, plan=plan)).save(path)
    with serving(path) as (url, _):
        one = visit(url).open("#likes=tea&likes=dogs&embedding=1")
        page = one.page
        expect(page.get_by_role("group", name="Taste").get_by_role("checkbox")).to_have_count(3)
        expect(page.get_by_label("tea")).to_be_checked()
        assert page.locator("#fields").get_by_text("Embedding").count() == 0
        one.do(lambda: page.get_by_label("<b>").check())
        answer = one.do(lambda: page.get_by_label("About me").fill("long walks"))
        assert page.url.endswith("#likes=tea&likes=%3Cb%3E&about_me=long+walks")
        assert answer["weights"] == {"person": 0, "taste": 1}
        expect(page.locator("#bars .value")).to_have_text(["0 %", "100 %"])
        one.do(lambda: page.get_by_role("button", name="Show me an example").click())
        expect(page.get_by_role("spinbutton", name="Age")).not_to_have_value("")


def test_long_ids_and_titles_are_cut(sample, visit, tmp_path):
    model = MFDCF(n_bits=64).fit(sample)
    ids = Ids.of([f"{row}-{'x' * 100_000}" for row in range(len(model.item_ids))], "item")
    titles = [None if row % 2 else f"{row} {'y' * 100_000}" for row in range(len(ids))]
    replace(model, item_ids=ids, item_table=pa.table({"title": titles})).save(tmp_path / "m")
    with serving(tmp_path / "m") as (url, _):
        one = visit(url).open()
        one.page.fill("#search", "1")
        expect(one.page.locator("#found li").first).to_be_visible()
        shown = one.texts(".title, .id, #news, #found li")
    assert len(shown) > 20
    assert max(map(len, shown)) < 5000
