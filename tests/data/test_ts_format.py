"""The archive's two text formats: what they say comes back, and what is wrong with a file is named by its line."""

import re

import numpy as np
import pytest

from lformer.data.files import DataError, Text
from lformer.data.ts_format import Archive, read_arff, read_ts

nan = float("nan")

TS = """# a comment, µ and all
@problemName 'Toy set'
@timeStamps false
@missing true

@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true down up
@data
1,2.5,-3e2:4,?,6:up

# between the series
7,8,9:10,NaN,12:down
"""

RELATIONAL = r"""% a comment
@relation 'Toy'

@attribute relationalAtt relational
@attribute att0 numeric
@attribute att1 numeric
@attribute att2 numeric
@end relationalAtt
@attribute 'the class' {down,'go up'}

@data
'1,2.5,-3e2\n4,?,6','go up'
% between the series
'7,8,9\n10,11,12',down
"""


def ts(content: str = TS, name: str = "toy.ts") -> Archive:
    return read_ts(Text(name, content.encode()))


def arff(*files: tuple[str, str]) -> Archive:
    return read_arff([Text(name, content.encode()) for name, content in files])


def one_channel(rows: list[str], classes: str = "{down,up}") -> str:
    lines = ["@relation ToyDimension1", *(f"@attribute t{i} real" for i in range(3)), f"@attribute class {classes}"]
    return "\n".join([*lines, "@data", *rows]) + "\n"


def same(values: np.ndarray, expected: list) -> None:  # type: ignore[type-arg]
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, np.array(expected, np.float64))


def test_ts_classification() -> None:
    toy = ts()
    same(toy.values, [[[1, 2.5, -300], [4, nan, 6]], [[7, 8, 9], [10, nan, 12]]])
    assert toy.labels.tolist() == ["up", "down"]
    assert toy.labels.dtype.kind == "U"
    assert toy.classes == ("down", "up")
    assert toy.name == "Toy set"


@pytest.mark.parametrize(
    "content",
    [
        TS.replace("\n", "\r\n"),
        re.sub(r"@\w+", lambda tag: tag[0].upper(), TS),
        re.sub(r"@\w+", lambda tag: tag[0].lower(), TS),
        TS.rstrip("\n"),
        TS.replace(",", " , ").replace(":", " : "),
        TS.replace("@dimensions", "@dimension"),
    ],
    ids=["CRLF", "upper", "lower", "no last newline", "spaces", "dimension"],
)
def test_ts_line_ends_case_of_tags_and_spaces_do_not_matter(content: str) -> None:
    toy = ts(content)
    same(toy.values, ts().values.tolist())
    assert toy.labels.tolist() == ["up", "down"]


def test_ts_regression() -> None:
    toy = ts("@problemname r\n@classLabel false\n@TARGETLABEL true\n@dimension 1\n@data\n1,2:7.25\n3,4:-1e-1\n")
    same(toy.values, [[[1, 2]], [[3, 4]]])
    same(toy.labels, [7.25, -0.1])
    assert toy.classes == ()


def test_ts_header_may_leave_shape_open() -> None:
    toy = ts("@classLabel true a b\n@data\n1,2,3:4,5,6:a\n")
    assert toy.values.shape == (1, 2, 3)
    assert toy.name == ""


def test_values_keep_every_digit() -> None:
    toy = ts("@targetLabel true\n@data\n0.1,1.7976931348623157e308,-0.012626000000000001:0.30000000000000004\n")
    same(toy.values, [[[0.1, 1.7976931348623157e308, -0.012626000000000001]]])
    assert toy.labels[0] == 0.1 + 0.2


WRONG_TS = {
    "time stamps": ("@timeStamps false", "@timeStamps True", 3, "without time stamps"),
    "unequal lengths": ("@equalLength true", "@equalLength false", 8, "equal length"),
    "no number of channels": ("@dimensions 2", "@dimensions two", 7, "number from 1, got 'two'"),
    "zero channels": ("@dimensions 2", "@dimensions 0", 7, "number from 1, got '0'"),
    "other number of channels": ("@dimensions 2", "@dimensions 3", 12, "expected 3 channels, as in the header, got 2"),
    "other spelling": ("@dimensions 2", "@dimension 3", 12, "expected 3 channels, as in the header, got 2"),
    "univariate": ("@univariate false\n@dimensions 2", "\n@univariate TRUE", 12, "expected 1 channels"),
    "other length": ("@seriesLength 3", "@seriesLength 4", 12, "channel 1: expected 4 values, as in the header, got 3"),
    "no classes": ("@classLabel true down up", "@classLabel true", 10, "names of the classes"),
    "class twice": ("@classLabel true down up", "@classLabel true up up", 10, "each once"),
    "no label tag": ("@classLabel true down up", "", 11, "'@classLabel true'"),
    "no labels": ("@classLabel true down up", "@classLabel false", 11, "'@classLabel true'"),
    "header without @": ("@missing true", "missing true", 4, "got 'missing true'"),
    "lone @": ("@data", "@\n1", 12, "got '1'"),
    "no @data": ("@data\n", "", 11, "got '1,2.5"),
    "word": ("-3e2", "x", 12, "channel 1, value 3: expected a number or '?', got 'x'"),
    "empty value": ("10,NaN", "10,", 15, "channel 2, value 2: expected a number or '?', got ''"),
    "infinite": ("10,NaN", "10,inf", 15, "channel 2, value 2"),
    "too large": ("10,NaN", "10,1e999", 15, "channel 2, value 2"),
    "underscore": ("10,NaN", "1_0,NaN", 15, "channel 2, value 1"),
    "time stamp pair": ("7,8,9", "(7,8),9", 15, "channel 1, value 1"),
    "unknown label": (":down", ":left", 15, "expected one of the classes down, up, got 'left'"),
    "no label": (":down", "", 15, "expected 2 channels, as in the series before, got 1"),
    "cut in the first channel": (",8,9:10,NaN,12:down\n", "", 15, "separated by ':', got '7'"),
    "cut in the label": ("down\n", "do", 15, "got 'do'"),
    "shorter": ("7,8,9:", "7,8:", 15, "channel 1: expected 3 values, as in the series before, got 2"),
    "other channel longer": ("12:down", "12,13:down", 15, "channel 2: expected 3 values"),
}


@pytest.mark.parametrize("case", WRONG_TS)
def test_ts_errors_name_the_line(case: str) -> None:
    old, new, line, message = WRONG_TS[case]
    head, found, tail = TS.rpartition(old)
    assert found
    with pytest.raises(DataError) as error:
        ts(head + new + tail, "some/toy.ts")
    assert f"some/toy.ts, line {line}: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "content", ["", "@classLabel true a\n", "@classLabel true a\n@data\n", TS[: TS.index("1,2.5")]]
)
def test_ts_without_series_is_an_error(content: str) -> None:
    with pytest.raises(DataError, match=r"toy\.ts, line \d+: expected .* but the file ends"):
        ts(content)


def test_ts_regression_labels_must_be_numbers() -> None:
    for label in ("?", "nan", "up", "", "inf"):
        with pytest.raises(DataError, match="line 3: expected a number as the label"):
            ts(f"@targetLabel true\n@data\n1,2:{label}\n")


def test_long_lines_do_not_flood_the_message() -> None:
    with pytest.raises(DataError) as error:
        ts("@targetLabel true\n@data\n" + "1," * 100_000 + "\n")
    assert len(str(error.value)) < 200


def test_relational_arff() -> None:
    toy = arff(("toy.arff", RELATIONAL))
    same(toy.values, [[[1, 2.5, -300], [4, nan, 6]], [[7, 8, 9], [10, 11, 12]]])
    assert toy.labels.tolist() == ["go up", "down"]
    assert toy.classes == ("down", "go up")
    assert toy.name == "Toy"
    other = arff(("toy.arff", RELATIONAL.upper().replace("\n", "\r\n").replace(r"\N", r"\n").replace("'", '"')))
    same(other.values, toy.values.tolist())


def test_relational_arff_regression() -> None:
    content = RELATIONAL.replace("{down,'go up'}", "NUMERIC").replace("'go up'", "1.5").replace(",down", ",-2")
    toy = arff(("toy.arff", content))
    same(toy.labels, [1.5, -2])
    assert toy.classes == ()


def test_one_arff_of_one_channel() -> None:
    toy = arff(("Toy_TRAIN.arff", one_channel(["1,2,3,up", "4,?,6,down"])))
    same(toy.values, [[[1, 2, 3]], [[4, nan, 6]]])
    assert toy.labels.tolist() == ["up", "down"]


def test_arff_of_one_file_per_channel_are_sorted_by_number() -> None:
    numbers = [10, 2, 9, 1, 11, 3, 8, 4, 7, 5, 6]
    files = [
        (f"Dimension77/ToyDimension{k}_TRAIN.arff", one_channel([f"{k},0,0,up", f"{-k},0,?,down"])) for k in numbers
    ]
    toy = arff(*files)
    assert toy.values.shape == (2, 11, 3)
    assert toy.values[0, :, 0].tolist() == list(range(1, 12))
    assert toy.values[1, :, 0].tolist() == [-k for k in range(1, 12)]
    assert np.isnan(toy.values[1, :, 2]).all()
    assert toy.labels.tolist() == ["up", "down"]
    assert toy.name == "Toy"


ROWS = ["1,2,3,up", "4,5,6,down"]


@pytest.mark.parametrize(
    ("second", "rows", "message"),
    [
        ("ToyDimension2.arff", ["1,2,3,up", "4,5,6,up"], "ToyDimension2.arff, line 8: expected the label down of Toy"),
        ("ToyDimension2.arff", ["1,2,3,up"], "ToyDimension2.arff, line 7: expected 2 series of length 3"),
        ("ToyDimension3.arff", ROWS, "ToyDimension3.arff, line 1: expected dimension 2 after ToyDimension1.arff"),
        ("copy/ToyDimension1.arff", ROWS, "line 1: expected dimension 2 after"),
        ("Toy.arff", ROWS, "Toy.arff, line 1: expected the number of the channel in the name"),
        ("ToyDimension2.arff", ["1,2,3,up", "4,5,6"], "line 8: channel 1: expected 3 values, as in the series"),
        (
            "ToyDimension2.arff",
            ["1,2,3,up", "4,x,6,up"],
            "line 8: channel 1, value 2: expected a number or '?', got 'x'",
        ),
        ("ToyDimension2.arff", ["1,2,3,up", "4,5,6,7"], "line 8: expected one of the classes down, up, got '7'"),
        ("ToyDimension2.arff", ["1,2,up"], "line 7: channel 1: expected 3 values, as in the header, got 2"),
        ("ToyDimension2.arff", ["1,2,3,up", "4"], "line 8: expected values and the label"),
    ],
)
def test_files_per_channel_must_agree(second: str, rows: list[str], message: str) -> None:
    with pytest.raises(DataError) as error:
        arff(("ToyDimension1.arff", one_channel(ROWS)), (second, one_channel(rows)))
    assert message in str(error.value)


def test_the_first_channel_must_be_there() -> None:
    with pytest.raises(DataError, match=r"ToyDimension2.arff, line 1: expected dimension 1"):
        arff(*((f"ToyDimension{k}.arff", one_channel(ROWS)) for k in (3, 2)))


def test_whole_series_do_not_mix_with_single_channels() -> None:
    with pytest.raises(DataError, match=r"ToyDimension2.arff, line 1: expected one channel"):
        arff(("ToyDimension1.arff", one_channel(ROWS)), ("ToyDimension2.arff", RELATIONAL))


WRONG_ARFF = {
    "no quote at the start": ("'7,8,9", "7,8,9", 14, "in quotes"),
    "no quote at the end": ("12',down", "12,down", 14, "in quotes"),
    "no label": ("12',down", "12'", 14, "in quotes"),
    "unknown label": ("',down", "',left", 14, "got 'left'"),
    "other number of channels": (r"\n10,11,12", "", 14, "expected 2 channels, as in the series before, got 1"),
    "shorter": (r"\n10,11,12", r"\n10,11", 14, "channel 2: expected 3 values, as in the series before, got 2"),
    "word": ("10,11", "10,ten", 14, "channel 2, value 2: expected a number or '?', got 'ten'"),
    "type of the label": ("{down,'go up'}", "string", 9, "got 'string'"),
    "no type": ("'the class' {down,'go up'}", "class", 9, "'@attribute name type'"),
    "two series": (
        "@attribute 'the",
        "@attribute more numeric\n@attribute 'the",
        4,
        "expected an attribute of type numeric",
    ),
    "series not announced": ("@attribute relationalAtt relational", "", 12, "channel 1, value 1"),
    "strange tag": ("@end", "@ende", 8, "got '@ende relationalAtt'"),
    "end of header missing": ("@end relationalAtt", "", 11, "expected attributes for values and label, got 1"),
}


@pytest.mark.parametrize("case", WRONG_ARFF)
def test_arff_errors_name_the_line(case: str) -> None:
    old, new, line, message = WRONG_ARFF[case]
    assert RELATIONAL.count(old) == 1
    with pytest.raises(DataError) as error:
        arff(("toy.arff", RELATIONAL.replace(old, new)))
    assert f"toy.arff, line {line}: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("content", ["", "@relation x\n", RELATIONAL[: RELATIONAL.index("'1,")]])
def test_arff_without_series_is_an_error(content: str) -> None:
    with pytest.raises(DataError, match=r"toy\.arff, line \d+: expected .* but the file ends"):
        arff(("toy.arff", content))


def test_no_file_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        read_arff([])
